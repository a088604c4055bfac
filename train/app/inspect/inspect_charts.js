// The charts of the page of `eddy inspect`, and the map of its state. They are drawn once for each width, then copied
// under the cursor. `ink` are the colours by name, `choose` goes to a token.
const inspectCharts = ({ count, number, bytes, ink, choose }) => {
  const charts = [];
  // A box with a title and a canvas; `seek` chooses the token under the pointer.
  const framed = (host, title, options) => {
    const box = document.createElement("div"), head = document.createElement("div"), pad = document.createElement("canvas");
    const ends = document.createElement("div"), name = document.createElement("strong");
    box.className = "graph";
    head.className = "head";
    ends.className = "ends";
    name.textContent = title;
    head.append(name);
    pad.setAttribute("role", "img");
    pad.setAttribute("aria-label", title);
    box.append(head, pad, ends);
    host.append(box);
    // margin: pixels on the left, for the numbers of an axis or for names.
    const made = { box, head, pad, ends, margin: 52, picture: document.createElement("canvas"), ...options };
    charts.push(made);
    if (options.seek) {
      const seek = event => {
        const area = pad.getBoundingClientRect();
        if (made.point) made.point((event.clientY - area.top) / area.height);
        choose(Math.min(count - 1, Math.max(0, Math.floor((event.clientX - area.left - made.margin) / (area.width - made.margin) * count))));
      };
      pad.addEventListener("pointerdown", event => { pad.setPointerCapture(event.pointerId); seek(event); });
      pad.addEventListener("pointermove", event => { if (event.buttons & 1) seek(event); });
    }
    return made;
  };
  const chart = (host, title, lines, length, options) => {
    if (!lines.length) return;
    const made = framed(host, title, { lines, length, ...options });
    made.told = lines.map((line, i) => {
      const key = document.createElement("span"), dash = document.createElement("i"), value = document.createElement("span");
      dash.style.setProperty("--c", "var(--c" + i % 6 + ")");
      key.append(dash, line.name + " ", value);
      made.head.append(key);
      return value;
    });
    return made;
  };
  // The map of a state: a row for each number, a column for each token or several. The chosen row is told in numbers.
  const stateMap = (host, title, states, options) => {
    if (!states.rows.length) return;
    const rows = states.rows.map(row => ({ ...row, shade: bytes(row.data) })), height = 16 * rows.length;
    const made = framed(host, title, { rows, length: states.columns, row: 0, ...options });
    made.pad.style.height = height + "px";
    const said = document.createElement("span");
    made.head.append(said);
    made.point = share => { made.row = Math.min(rows.length - 1, Math.max(0, Math.floor(share * rows.length))); };
    made.tell = token => {
      const row = rows[made.row], shade = row.shade[Math.floor(token * states.columns / count)];
      const value = shade === 255 ? "none" : number(Number((row.low + (row.high - row.low) * shade / 254).toPrecision(3)));
      said.textContent = row.name + ": " + value + " \u00b7 colours from " + number(row.low) + " to " + number(row.high);
    };
    return made;
  };
  const paintMap = one => {
    const all = one.pad.clientWidth, h = one.pad.clientHeight, scale = window.devicePixelRatio || 1;
    one.margin = Math.round(Math.min(230, 0.34 * all));
    const w = all - one.margin, high = h / one.rows.length;
    if (w <= 0) return;
    for (const c of [one.pad, one.picture]) { c.width = Math.ceil(all * scale); c.height = Math.ceil(h * scale); }
    const g = one.picture.getContext("2d"), columns = Math.min(Math.floor(w), one.length);
    g.scale(scale, scale);
    g.font = "12px sans-serif";
    one.rows.forEach((row, r) => {
      g.globalAlpha = 1;
      g.fillStyle = ink["--soft"];
      // The end of a name says which number it is.
      let name = row.name;
      while (name.length > 8 && g.measureText(name).width > one.margin - 8) name = "\u2026" + name.slice(2);
      g.fillText(name, 0, (r + 0.75) * high);
      for (let x = 0; x < columns; x++) {
        const from = Math.floor(x * one.length / columns), to = Math.max(from + 1, Math.floor((x + 1) * one.length / columns));
        let sum = 0, n = 0;
        for (let i = from; i < to; i++) if (row.shade[i] !== 255) { sum += row.shade[i]; n++; }
        if (!n) continue;
        const side = sum / n / 127 - 1;
        g.globalAlpha = Math.min(1, Math.abs(side));
        g.fillStyle = ink[side < 0 ? "--c4" : "--c2"];
        g.fillRect(one.margin + x * w / columns, r * high, w / columns + 0.5, high - 1);
      }
    });
    one.ends.textContent = "";
    for (const words of one.names) { const span = document.createElement("span"); span.textContent = words; one.ends.append(span); }
    one.ready = true;
  };
  // The means of the tokens behind each pixel, and their range, on a canvas of its own.
  const paint = one => {
    if (one.rows) return paintMap(one);
    const margin = one.margin;
    const w = one.pad.clientWidth - margin, h = one.pad.clientHeight, scale = window.devicePixelRatio || 1;
    if (w <= 0) return;
    for (const c of [one.pad, one.picture]) { c.width = Math.ceil((w + margin) * scale); c.height = Math.ceil(h * scale); }
    const g = one.picture.getContext("2d");
    g.scale(scale, scale);
    const columns = Math.min(Math.floor(w), one.length), drawn = one.lines.map(line => {
      const mean = new Float32Array(columns), low = new Float32Array(columns), high = new Float32Array(columns);
      for (let x = 0; x < columns; x++) {
        const from = Math.floor(x * one.length / columns), to = Math.max(from + 1, Math.floor((x + 1) * one.length / columns));
        let sum = 0, n = 0, a = Infinity, b = -Infinity;
        for (let i = from; i < to; i++) {
          const v = line.values[i];
          if (isNaN(v)) continue;
          sum += v; n++;
          if (v < a) a = v;
          if (v > b) b = v;
        }
        mean[x] = n ? sum / n : NaN;
        low[x] = n ? a : NaN;
        high[x] = n ? b : NaN;
      }
      return { mean, low, high };
    });
    const all = drawn.flatMap(d => Array.from(d.mean)).filter(v => !isNaN(v)).sort((a, b) => a - b);
    const tops = drawn.flatMap(d => Array.from(d.high)).filter(v => !isNaN(v)).sort((a, b) => a - b);
    if (!all.length) return;
    // A few high ones would flatten the rest: they are cut, and the highest is said.
    const end = (sorted, f) => sorted[Math.round(f * (sorted.length - 1))], highest = tops[tops.length - 1];
    const bottom = one.zero ? Math.min(0, end(all, 0.005)) : all[0];
    let top = Math.max(1.1 * end(all, 0.99), end(tops, 0.5));
    if (one.whole || top > highest) top = highest;
    if (one.top) top = one.top;
    if (!(top > bottom)) top = bottom + 1;
    const y = v => h - 4 - (h - 8) * (Math.min(top, Math.max(bottom, v)) - bottom) / (top - bottom);
    g.fillStyle = ink["--soft"];
    g.font = "12px sans-serif";
    g.textAlign = "right";
    for (const [value, at] of [[top, 15], [(top + bottom) / 2, h / 2 + 4], [bottom, h - 5]])
      g.fillText(number(Number(value.toPrecision(Math.abs(value) < 0.1 ? 2 : 3))), margin - 6, at);
    g.translate(margin, 0);
    g.strokeStyle = ink["--rule"];
    g.lineWidth = 1;
    for (const f of [0, 0.5, 1]) { g.beginPath(); g.moveTo(0, 4 + f * (h - 8)); g.lineTo(w, 4 + f * (h - 8)); g.stroke(); }
    drawn.forEach((d, i) => {
      const colour = ink["--c" + i % 6];
      g.fillStyle = g.strokeStyle = colour;
      if (drawn.length === 1 && columns < one.length) {
        g.globalAlpha = 0.16;
        for (let x = 0; x < columns; x++) if (!isNaN(d.low[x])) g.fillRect(x * w / columns, y(d.high[x]), w / columns, Math.max(1, y(d.low[x]) - y(d.high[x])));
        g.globalAlpha = 1;
      }
      g.lineWidth = 1.5;
      g.beginPath();
      let open = false;
      for (let x = 0; x < columns; x++) {
        if (isNaN(d.mean[x])) { open = false; continue; }
        const px = (x + 0.5) * w / columns;
        if (open) g.lineTo(px, y(d.mean[x])); else g.moveTo(px, y(d.mean[x]));
        open = true;
      }
      g.stroke();
    });
    one.ends.textContent = "";
    const cutOff = highest > top ? ["cut here; highest " + number(highest)] : [];
    for (const words of [one.names[0], ...cutOff, one.names[1]]) { const span = document.createElement("span"); span.textContent = words; one.ends.append(span); }
    one.ready = true;
  };
  const pointer = one => {
    if (!one.ready) return;
    const g = one.pad.getContext("2d"), at = one.at();
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.clearRect(0, 0, one.pad.width, one.pad.height);
    g.drawImage(one.picture, 0, 0);
    if (at < 0) return;
    const left = one.margin * one.pad.width / one.pad.clientWidth, x = left + (at + 0.5) / (one.rows ? count : one.length) * (one.pad.width - left);
    g.fillStyle = ink["--ink"];
    g.fillRect(Math.round(x) - 1, 0, 2, one.pad.height);
    if (one.rows) { one.tell(at); return; }
    one.lines.forEach((line, i) => { one.told[i].textContent = number(line.values[at]); });
  };
  return { charts, chart, stateMap, paint, pointer };
};
