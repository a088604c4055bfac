// The page of `eddy inspect`. The text is laid out once as lines of tokens; only the lines in sight are in the document,
// and their colours are drawn on a canvas below them. inspect_charts.js draws the charts.
(function () {
  const data = JSON.parse(document.getElementById("inspected").textContent);
  const $ = id => document.getElementById(id);
  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const shorts = text => new Uint16Array(bytes(text).buffer), floats = text => new Float32Array(bytes(text).buffer);
  const count = data.tokens, lengths = shorts(data.lengths), text = data.text;
  const begin = new Uint32Array(count + 1);
  for (let i = 0; i < count; i++) begin[i + 1] = begin[i] + lengths[i];
  const shown = piece => piece.replace(/\n/g, "\u23ce").replace(/\t/g, "\u2192").replace(/\r/g, "\u240d") || "\u00b7";
  const piece = i => i < 0 || i >= count ? "" : shown(text.slice(begin[i], begin[i + 1]));
  const grouped = n => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const number = v => isNaN(v) ? "none" : v !== 0 && Math.abs(v) < 0.001 ? v.toExponential(1) : String(Number(v.toPrecision(4)));

  // ---- series: a number for each token
  const series = data.series.map(s => {
    let values;
    if (s.low === undefined) {
      values = floats(s.data);
    } else {
      values = new Float32Array(count);
      shorts(s.data).forEach((q, i) => { values[i] = q === 65535 ? NaN : s.low + (s.high - s.low) * q / 65534; });
    }
    return { measure: s.measure, path: s.path, label: s.label, unit: s.unit, settling: s.settling || [], values };
  });
  // Of a task: the right answers behind tokens, and those of the model; -1 for none.
  const ids = text => new Int32Array(bytes(text).buffer), answers = data.answers && ids(data.answers), given = data.answers && ids(data.given);
  const of = measure => series.filter(s => s.measure === measure);
  const loss = of("loss")[0], cleared = of("loss_cleared")[0];
  if (cleared) {
    const gain = new Float32Array(count);
    for (let i = 0; i < count; i++) gain[i] = cleared.values[i] - loss.values[i];
    series.push({ measure: "gain", path: "", label: "what the state saves (loss without it - loss)", unit: " nats", settling: [], values: gain });
  }
  const colours = { loss: "--c1", loss_cleared: "--c1", gain: "--c2", change: "--c3", moved: "--c3", norm: "--c5", gate: "--c0" };
  // The ends of the scale: all but one in fifty tokens lie inside.
  for (const s of series) {
    const some = [], step = Math.max(1, Math.floor(count / 20000));
    for (let i = 0; i < count; i += step) if (!isNaN(s.values[i])) some.push(s.measure === "gain" ? Math.abs(s.values[i]) : s.values[i]);
    some.sort((a, b) => a - b);
    const at = f => some.length ? some[Math.min(some.length - 1, Math.floor(f * some.length))] : 0;
    s.low = s.measure === "norm" ? at(0.02) : 0;
    s.high = s.measure === "gate" ? 1 : Math.max(at(0.98), s.low + 1e-9);
  }
  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const ink = {};
  const readColours = () => {
    for (const name of ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--rule", "--soft", "--ink"]) ink[name] = style(name);
  };
  const alphaOf = (s, v) => isNaN(v) ? 0 : 0.62 * Math.min(1, Math.max(0, (Math.abs(v) - s.low) / (s.high - s.low)));
  const hueOf = (s, v) => ink[s.measure === "gain" && v < 0 ? "--c4" : colours[s.measure]];

  // ---- the text
  const reader = $("reader"), sheet = $("sheet"), lines = $("lines"), canvas = $("tint"), pen = canvas.getContext("2d");
  const lineHeight = 24, font = getComputedStyle(lines).fontSize + " " + getComputedStyle(lines).fontFamily;
  // Browsers end an element at 17 million pixels and more. A taller text has a shorter sheet, on which the bar stands at `bar`:
  // `top`, the pixel of the text at the upper edge, is `squeeze` times that.
  const tallest = 15e6;
  let top = 0, bar = 0, squeeze = 1;
  const goTo = y => {
    top = Math.max(0, Math.min(y, lineCount * lineHeight + 16 - reader.clientHeight));
    reader.scrollTop = top / squeeze;
    bar = reader.scrollTop;
    if (squeeze === 1) top = bar;
  };
  // A short move of the bar, by a wheel, a finger or a key, moves the text as far; a long one goes where the bar is.
  const scrolled = () => {
    const at = reader.scrollTop, moved = at - bar;
    if (moved === 0) return;
    anchor = null;
    if (squeeze === 1) {
      top = bar = at;
    } else if (Math.abs(moved) > 2 * reader.clientHeight) {
      goTo(at * squeeze);
    } else {
      // At an end the bar has no room for all of the move.
      const isEnd = at <= 0 || at >= tallest - reader.clientHeight - 1;
      goTo(top + Math.sign(moved) * Math.max(Math.abs(moved), isEnd ? 3 * lineHeight : 0));
    }
    drawSoon();
  };
  const gains = of("gain")[0];
  let by = gains && gains.high > 1e-6 ? gains : series[0], chosen = -1, over = -1, lineStart = new Uint32Array(1), lineCount = 0, letter = 9, width = 0, sharp = 1;
  let most = 48;  // letters of a token; longer ones are cut here, and shown whole below
  const cut = p => p.length > most ? p.slice(0, most - 1) + "\u2026" : p;
  const plain = p => /^[ -~]*$/.test(p);
  const wide = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\ud800-\udbff]/;
  const columnsOf = p => {
    if (plain(p)) return p.length;
    let sum = 0;
    for (const c of p) sum += wide.test(c) ? 2 : 1;
    return sum;
  };
  // What `layOut` keeps in its place: { token, y }, y in pixels below the upper edge. The chosen token where it is in view,
  // else the first one in view; held until the reader moves, so that widths that come and go leave it where it was.
  let anchor = null;
  const anchorNow = () => {
    const least = Math.ceil(top / lineHeight), line = chosen < 0 ? -1 : lineOf(chosen);
    const inView = line >= least && (line + 1) * lineHeight <= top + reader.clientHeight;
    const kept = inView ? line : Math.min(least, lineCount - 1);
    return { token: inView ? chosen : lineStart[kept], y: kept * lineHeight - top };
  };
  const layOut = () => {
    if (lineCount && !anchor) anchor = anchorNow();
    width = sheet.clientWidth;
    pen.font = font;
    letter = pen.measureText("0".repeat(100)).width / 100;
    const columns = Math.max(8, Math.floor(width / letter));
    most = Math.min(48, columns);
    // Lines break before a word where they can: at the token `word`, from which on `held` columns are used.
    const starts = [0];
    let used = 0, word = -1, held = 0, spaced = false;
    for (let i = 0; i < count; i++) {
      const raw = text.slice(begin[i], begin[i + 1]), need = columnsOf(cut(shown(raw)));
      if (spaced || raw.startsWith(" ")) { word = i; held = 0; }
      if (used > 0 && used + need > columns) {
        const whole = word > starts[starts.length - 1] && held + need <= columns;
        starts.push(whole ? word : i);
        used = whole ? held : 0;
        word = -1;
      }
      used += need;
      held += need;
      spaced = raw.endsWith(" ");
      if (raw.includes("\n") && i + 1 < count) { starts.push(i + 1); used = 0; word = -1; spaced = false; }
    }
    lineStart = Uint32Array.from(starts);
    lineCount = starts.length;
    const seen = reader.clientHeight, height = lineCount * lineHeight + 16;
    $("tall").style.height = Math.min(height, tallest) + "px";
    squeeze = height > tallest ? (height - seen) / (tallest - seen) : 1;
    if (anchor) goTo(lineOf(anchor.token) * lineHeight - Math.min(anchor.y, seen - 2 * lineHeight));
    layout++;
    drawn = "";
  };
  const lineOf = token => {
    let low = 0, high = lineCount - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (lineStart[mid] <= token) low = mid; else high = mid - 1;
    }
    return low;
  };
  const endOf = line => line + 1 < lineCount ? lineStart[line + 1] : count;
  // Puts a line into its box, and returns where its tokens begin, and its end, in pixels: where the browser lays them
  // out, from left to right whatever their script. Tokens in one place, as a letter and its marks, share its width.
  const range = document.createRange();
  const put = (line, box) => {
    const from = lineStart[line], to = endOf(line);
    if (box.layout === layout && box.line === line) return { from, to, edges: box.edges };
    const pieces = Array.from({ length: to - from }, (_, k) => cut(piece(from + k))), edges = new Float32Array(to - from + 1);
    box.textContent = pieces.join("");
    const simple = plain(box.textContent), left = simple ? 0 : box.getBoundingClientRect().left;
    let at = 0;
    pieces.forEach((p, k) => {
      if (!simple) range.setStart(box.firstChild, at);
      at += p.length;
      if (!simple) range.setEnd(box.firstChild, at);
      edges[k + 1] = simple ? at * letter : Math.max(edges[k], range.getBoundingClientRect().right - left);
    });
    for (let k = 0, end; k < pieces.length; k = end) {
      for (end = k + 1; end < pieces.length && edges[end + 1] === edges[end];) end++;
      for (let i = k + 1; i < end; i++) edges[i] = edges[k] + (edges[end] - edges[k]) * (i - k) / (end - k);
    }
    Object.assign(box, { layout, line, edges });
    return { from, to, edges };
  };
  let drawn = "", layout = 0, firstDrawn = 0, looked = new Map();
  const draw = () => {
    const extra = 6;
    const first = Math.max(0, Math.floor(top / lineHeight) - extra);
    const last = Math.min(lineCount, Math.ceil((top + reader.clientHeight) / lineHeight) + extra);
    const state = [first, last, squeeze === 1 ? 0 : top, width, by.label, by.measure, chosen, over, attention.version].join("|");
    if (state === drawn) return;
    drawn = state;
    const height = (last - first) * lineHeight;
    sheet.style.transform = "translateY(" + (first * lineHeight + 8 + bar - top) + "px)";
    sharp = window.devicePixelRatio || 1;
    if (canvas.width !== Math.ceil(width * sharp) || canvas.height !== Math.ceil(height * sharp)) {
      canvas.width = Math.ceil(width * sharp);
      canvas.height = Math.ceil(height * sharp);
      canvas.style.width = width + "px";
      canvas.style.height = height + "px";
    }
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = font;
    firstDrawn = first;
    while (lines.childElementCount > last - first) lines.lastChild.remove();
    while (lines.childElementCount < last - first) lines.append(document.createElement("div"));
    for (let line = first; line < last; line++) {
      const { from, to, edges } = put(line, lines.children[line - first]), y = (line - first) * lineHeight;
      for (let i = from; i < to; i++) {
        const v = by.values[i], x = edges[i - from], w = edges[i - from + 1] - x;
        const alpha = alphaOf(by, v);
        if (alpha > 0.01) {
          pen.globalAlpha = alpha;
          pen.fillStyle = hueOf(by, v);
          pen.fillRect(x, y + 1, w, lineHeight - 2);
        }
        const share = looked.get(i);
        if (share) {
          const thick = 2 + 5 * Math.sqrt(share / 255);
          pen.globalAlpha = 1;
          pen.fillStyle = ink["--c0"];
          pen.fillRect(x, y + lineHeight - 1 - thick, Math.max(2, w - 1), thick);
        }
        if (answers && answers[i] >= 0) {
          pen.globalAlpha = 1;
          pen.fillStyle = ink[given[i] === answers[i] ? "--c2" : "--c4"];
          pen.fillRect(x, y + 1, Math.max(2, w - 1), given[i] === answers[i] ? 2 : 5);
        }
        if (i === chosen || i === over) {
          pen.globalAlpha = 1;
          pen.strokeStyle = ink["--ink"];
          pen.lineWidth = i === chosen ? 2 : 1;
          pen.strokeRect(x + 0.5, y + 1.5, Math.max(3, w - 1), lineHeight - 3);
        }
      }
    }
    pen.globalAlpha = 1;
  };
  let waiting = false;
  const drawSoon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };
  const tokenAt = event => {
    const box = reader.getBoundingClientRect();
    const line = Math.floor((event.clientY - box.top - reader.clientTop + top - 8) / lineHeight);
    if (line < 0 || line >= lineCount) return -1;
    draw();
    const inSight = lines.children[line - firstDrawn];
    if (!inSight) return -1;
    const x = event.clientX - sheet.getBoundingClientRect().left, { from, to, edges } = put(line, inSight);
    for (let i = from; i < to; i++) if (x >= edges[i - from] && x < edges[i - from + 1]) return i;
    return -1;
  };

  // ---- what is said of a token
  const quoted = i => "\u201c" + piece(i) + "\u201d";
  const tell = token => {
    const out = $("told");
    out.textContent = "";
    if (token < 0) return;
    const strong = document.createElement("b");
    strong.textContent = "token " + grouped(token) + " " + quoted(token);
    out.append(strong);
    const parts = series.filter(s => s === by || s.measure.startsWith("loss") || s.measure === "gain")
        .map(s => (s.measure === "gain" ? "the state saves" : s.label) + " " + number(s.values[token]) + (isNaN(s.values[token]) ? "" : s.unit));
    if (answers && answers[token] >= 0) {
      const right = data.names[answers[token]], said = data.names[given[token]];
      parts.unshift("answer " + right + (said === right ? ", right" : ", given " + said + ": wrong"));
    }
    out.append(" \u00b7 " + parts.join(" \u00b7 ") + (token % data.segment === 0 ? " \u00b7 a segment begins here" : ""));
  };
  const context = token => {
    const code = document.createElement("code"), mark = document.createElement("mark");
    const around = (a, b) => shown(text.slice(begin[Math.max(0, a)], begin[Math.min(count, Math.max(0, b))])).replace(/^\u00b7$/, "");
    let from = token, to = token + 1;
    while (from > 0 && begin[token] - begin[from] < 12) from--;
    while (to < count && begin[to] - begin[token + 1] < 24) to++;
    mark.textContent = piece(token);
    code.append(around(from, token), mark, around(token + 1, to));
    return code;
  };
  const row = (left, where, middle, share, action) => {
    const made = document.createElement(action ? "button" : "div");
    made.className = "row";
    const name = document.createElement("span"), place = document.createElement("span");
    const meter = document.createElement("div"), bar = document.createElement("i");
    name.textContent = left;
    place.textContent = where;
    place.className = "soft";
    meter.className = "meter";
    bar.style.width = 100 * Math.min(1, share) + "%";
    meter.append(bar);
    made.append(name, place, middle, meter);
    if (action) { made.type = "button"; made.addEventListener("click", action); }
    return made;
  };
  const softly = words => {
    const span = document.createElement("span");
    span.className = "soft";
    span.textContent = words;
    return span;
  };

  // ---- attention
  const attention = { version: 0, views: data.attention.map(v => ({
    ...v, key: v.wide ? new Int32Array(bytes(v.key).buffer) : shorts(v.key), share: bytes(v.share), rest: bytes(v.rest) })) };
  const options = (select, names, keep) => {
    const before = select.value;
    select.textContent = "";
    names.forEach(([value, name]) => select.add(new Option(name, value)));
    if (keep && names.some(([value]) => String(value) === before)) select.value = before;
  };
  const view = () => attention.views[Number($("view").value) || 0];
  // The chosen head of a view; the mean stands behind the last one.
  const headOf = v => $("head").value === "mean" ? v.heads : Number($("head").value);
  const fillHeads = () => {
    const v = view();
    if (!v) return;
    options($("head"), [["mean", "mean over " + v.heads + " heads"]].concat(Array.from({ length: v.heads }, (_, h) => [h, "head " + h])), true);
    options($("pass"), Array.from({ length: v.passes }, (_, p) => [p, "pass " + (p + 1) + " of " + v.passes]), true);
    $("pass").parentElement.hidden = v.passes < 2;
  };
  // [[key, share]] of a token, the largest first, and what is left.
  const looks = token => {
    const v = view();
    if (!v || token < v.from || token >= v.to) return null;
    const pass = Number($("pass").value) || 0, head = headOf(v);
    const at = (pass * (v.heads + 1) + head) * (v.to - v.from) + token - v.from, found = [];
    for (let j = 0; j < v.kept; j++) {
      const share = v.share[at * v.kept + j];
      if (share > 0) found.push([v.keys ? v.key[at * v.kept + j] : token - v.key[at * v.kept + j], share]);
    }
    return { found, rest: v.rest[at] };
  };
  const showAttention = () => {
    looked = new Map();
    attention.version++;
    const v = view(), out = $("keys");
    if (!v) return;
    out.textContent = "";
    const said = $("looks");
    if (chosen < 0) {
      said.textContent = "Choose a token in the text.";
      return;
    }
    const seen = looks(chosen);
    if (!seen) {
      said.textContent = "Attention is kept for the tokens " + grouped(v.from) + " to " + grouped(v.to - 1) + " (--attention FROM:TO chooses others).";
      return;
    }
    said.textContent = "Token " + grouped(chosen) + " " + quoted(chosen) +
        (seen.found.length || seen.rest > 0 ? " reads from:" : " sees nothing here.");
    // Where nothing is carried, keys before the segment are no tokens of the text.
    const warm = data.carried ? 0 : chosen - chosen % data.segment;
    for (const [key, share] of seen.found) {
      const part = number(Math.round(1000 * share / 255) / 10) + " %";
      if (v.keys) out.append(row(part, "", softly(v.keys + " " + key), share / 255));
      else if (key < warm) out.append(row(part, grouped(chosen - key) + " back", softly("before the " + (key < 0 ? "text" : "segment") + ": what a cold start has there"), share / 255));
      else {
        looked.set(key, share);
        // A gate has two keys: the token, and the state, which stands at the token before.
        const where = key === chosen ? "itself" : /gate$/.test(v.path) ? "the state" : grouped(chosen - key) + " back";
        out.append(row(part, where, context(key), share / 255, () => choose(key, true)));
      }
    }
    if (seen.rest > 0) out.append(row(number(Math.round(1000 * seen.rest / 255) / 10) + " %", "", softly("all other keys together"), seen.rest / 255));
  };

  const { charts, chart, stateMap, paint, pointer } = inspectCharts({ count, number, bytes, ink, choose: token => choose(token, true) });

  // ---- the list of tokens
  const fillMoved = () => {
    const s = series[Number($("which").value)], out = $("moved");
    if (!s) return;
    out.textContent = "";
    // A value that all tokens of a block share is listed once, at the first of them; a state that has just begun is
    // small, so its changes are large shares.
    const order = [], begun = new Uint8Array(count);
    for (const [from, to] of s.settling) begun.fill(1, from, to);
    for (let i = 0; i < count; i++)
      if (s.values[i] > 0 && !begun[i] && !(s.measure === "change" && s.values[i] === s.values[i - 1])) order.push(i);
    order.sort((a, b) => s.values[b] - s.values[a] || a - b);
    const top = order.slice(0, 15), high = top.length ? s.values[top[0]] : 1;
    for (const i of top) {
      out.append(row(number(s.values[i]), grouped(i), context(i), s.values[i] / high, () => choose(i, true)));
    }
    const left = begun.reduce((a, b) => a + b, 0);
    if (left) {
      const p = document.createElement("p");
      p.className = "empty";
      p.textContent = "Left out: " + grouped(left) + (left === 1 ? " token" : " tokens") + " behind the beginning of the state, until its norm first reaches the lowest quarter of its norms.";
      out.append(p);
    }
    if (!top.length) { const p = document.createElement("p"); p.className = "empty"; p.textContent = "No token did."; out.append(p); }
  };

  // ---- choosing
  const choose = (token, jump) => {
    if (!(token >= 0 && token < count)) return;
    chosen = token;
    $("scrub").value = $("go").value = token;
    if (jump) {
      const y = lineOf(token) * lineHeight;
      if (y < top + lineHeight || y > top + reader.clientHeight - 2 * lineHeight) goTo(y - reader.clientHeight / 2);
    }
    anchor = null;
    tell(token);
    showAttention();
    charts.forEach(pointer);
    drawSoon();
  };
  const colourBy = () => {
    by = series[Number($("by").value)] || series[0];
    const g = $("scale").getContext("2d"), c = $("scale"), signed = by.measure === "gain";
    c.width = 180; c.height = 24;
    g.clearRect(0, 0, 180, 24);
    for (let x = 0; x < 180; x++) {
      const v = signed ? by.high * (x / 90 - 1) : by.low + (by.high - by.low) * x / 179;
      g.globalAlpha = alphaOf(by, v);
      g.fillStyle = hueOf(by, v);
      g.fillRect(x, 0, 1, 24);
    }
    $("low").textContent = number(signed ? -by.high : by.low);
    $("high").textContent = number(by.high) + by.unit;
    tell(over >= 0 ? over : chosen);
    drawSoon();
  };

  // ---- all together
  const everything = () => {
    readColours();
    layOut();
    charts.forEach(paint);
    charts.forEach(pointer);
    colourBy();
    draw();
  };
  options($("by"), series.map((s, i) => [i, s.label]));
  $("by").value = series.indexOf(by);
  const hosts = $("charts"), last = grouped(count - 1), plainChart = { seek: true, at: () => chosen, names: ["token 0", "token " + last] };
  const named = list => list.map(s => ({ name: s.path || s.label, values: s.values }));
  chart(hosts, "Loss, nats: means of the tokens behind each pixel", named(of("loss").concat(of("loss_cleared"))), count, { ...plainChart, zero: true });
  chart(hosts, "What the state saves, nats", of("gain").map(s => ({ name: "loss without the state - loss", values: s.values })), count,
      { ...plainChart, zero: true });
  if (data.states) stateMap($("states"), data.states.title, data.states, plainChart);
  chart(hosts, "Norm of the state", named(of("norm")), count, plainChart);
  chart(hosts, "Change of the state, as a share of its norm", named(of("change")), count, { ...plainChart, zero: true });
  chart(hosts, "Gates: means over heads or channels", named(of("gate")), count, { ...plainChart, zero: true, top: 1 });
  options($("view"), attention.views.map((v, i) => [i, v.path + (v.keys ? ": which " + v.keys : "")]));
  fillHeads();
  const moving = series.map((s, i) => [s, i]).filter(([s]) => s.measure === "moved" || s.measure === "change" || s.measure === "gain");
  if ($("which")) {
    moving.sort(([a], [b]) => (a.measure === "moved" ? 0 : a.measure === "change" ? 1 : 2) - (b.measure === "moved" ? 0 : b.measure === "change" ? 1 : 2));
    options($("which"), moving.map(([s, i]) => [i, s.label]));
    fillMoved();
    $("which").addEventListener("change", fillMoved);
  }
  // The bias of the chosen head, if its layer has one.
  let biasChart = null;
  const showBias = () => {
    const host = $("bias"), v = view();
    if (!host || !v) return;
    host.textContent = "";
    if (biasChart) charts.splice(charts.indexOf(biasChart), 1);
    biasChart = null;
    const b = data.bias.find(one => one.path === v.path.replace(/probabilities$/, "bias"));
    if (!b) return;
    const all = floats(b.data), distances = all.length / b.heads, head = headOf(v);
    const of = h => Float32Array.from(all.subarray(h * distances, (h + 1) * distances));
    const lines = head < b.heads ? [{ name: "head " + head, values: of(head) }] :
        Array.from({ length: b.heads }, (_, h) => ({ name: "head " + h, values: of(h) }));
    biasChart = chart(host, "Relative bias: what a distance adds to the score", lines, distances,
        { at: () => -1, whole: true, names: ["0 tokens back", distances - 1 + " back"] });
    paint(biasChart);
    pointer(biasChart);
  };
  $("by").addEventListener("change", colourBy);
  for (const id of ["view", "head", "pass"]) {
    $(id).addEventListener("change", () => { if (id === "view") fillHeads(); showBias(); showAttention(); drawSoon(); });
  }
  reader.addEventListener("scroll", scrolled, { passive: true });
  reader.addEventListener("pointermove", event => {
    const token = tokenAt(event);
    if (token === over) return;
    over = token;
    tell(over >= 0 ? over : chosen);
    drawSoon();
  });
  reader.addEventListener("pointerleave", () => { over = -1; tell(chosen); drawSoon(); });
  reader.addEventListener("click", event => {
    const token = tokenAt(event);
    if (token < 0) return;
    choose(token, false);
    try { history.replaceState(null, "", "#t" + token); } catch (refused) { }
  });
  reader.addEventListener("keydown", event => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    choose(Math.min(count - 1, Math.max(0, chosen + step)), true);
  });
  $("scrub").addEventListener("input", () => choose(Number($("scrub").value), true));
  $("go").addEventListener("change", () => choose(Math.min(count - 1, Math.max(0, Math.round(Number($("go").value)))), true));
  const openSource = () => {
    const token = /^#t(\d+)$/.exec(location.hash), line = /^#L\d+$/.test(location.hash);
    if (token) choose(Number(token[1]), true);
    if (line && $("literal")) { $("literal").open = true; document.querySelector(location.hash).scrollIntoView({ block: "center" }); }
  };
  window.addEventListener("hashchange", openSource);
  let later = 0;
  // A width can change without a resize of the window, as when a scroll bar comes. Lines fit before they are shown;
  // charts stretch until they are drawn anew.
  new ResizeObserver(() => { if (sheet.clientWidth !== width) { layOut(); draw(); } }).observe(reader);
  window.addEventListener("resize", () => { clearTimeout(later); later = setTimeout(everything, 60); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", everything);
  everything();
  showBias();
  showAttention();
  choose(Math.max(0, (lineCount > 4 ? lineStart[4] : count) - 1), true);
  openSource();
  document.body.dataset.ready = "yes";  // for tests: nothing above failed
})();
