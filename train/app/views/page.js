document.querySelectorAll("svg.plot").forEach(function (svg) {
  const [width, left, top, w, h] = JSON.parse(svg.dataset.frame);
  const xAxis = JSON.parse(svg.dataset.x), yAxis = JSON.parse(svg.dataset.y);
  const value = ([low, high, log], f) => log ? low * Math.pow(high / low, f) : low + f * (high - low);
  const show = v => String(Number(v.toPrecision(4)));
  const cursor = svg.querySelector(".cursor"), out = svg.closest("figure").querySelector(".readout");
  let series = null;
  svg.addEventListener("pointermove", function (event) {
    series = series || Array.from(svg.querySelectorAll("path[data-name]"), path => ({
      name: path.dataset.name,
      points: Array.from(path.getAttribute("d").matchAll(/[ML]([-\d.]+) ([-\d.]+)/g), m => [+m[1], +m[2]])
    }));
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) * width / box.width;
    const near = new Map();
    for (const s of series) {
      for (const p of s.points) {
        const old = near.get(s.name), d = Math.abs(p[0] - at);
        if (d <= 8 && (!old || d < Math.abs(old[0] - at))) near.set(s.name, p);
      }
    }
    if (near.size === 0) return;
    const best = Array.from(near.values()).reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
    const x = value(xAxis, (best[0] - left) / w);
    const parts = [Math.abs(x) >= 100 ? String(Math.round(x)) : show(x)];
    for (const [name, p] of near) {
      const beyond = p[1] < top ? "over " : p[1] > top + h ? "under " : "";
      parts.push(name + " " + beyond + show(value(yAxis, Math.min(1, Math.max(0, 1 - (p[1] - top) / h)))));
    }
    out.textContent = svg.dataset.xTitle + " " + parts.join("  \u00b7  ");
    cursor.setAttribute("x1", best[0]);
    cursor.setAttribute("x2", best[0]);
  });
  svg.addEventListener("pointerleave", function () {
    out.textContent = "";
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
  });
});
(function () {
  const all = selector => Array.from(document.querySelectorAll(selector));
  const sliders = all(".slider > input");
  for (const input of sliders) {
    const texts = Array.from(input.parentElement.querySelectorAll(":scope > .text"));
    const show = () => texts.forEach((text, i) => { text.hidden = i !== Number(input.value); });
    input.parentElement.classList.add("on");
    input.addEventListener("input", show);
    show();
  }
  const status = document.querySelector(".status.live");
  if (!status) return;

  // What a reader has chosen and opened, and where the page stands, are as before after it is loaded again.
  const key = "eddy " + location.pathname, folds = all("details");
  try {
    const kept = JSON.parse(sessionStorage.getItem(key)) || {};
    for (const id of kept.chosen || []) if (document.getElementById(id)) document.getElementById(id).checked = true;
    (kept.open || []).forEach((open, i) => { if (folds[i]) folds[i].open = open; });
    (kept.sliders || []).forEach((value, i) => {
      if (value === null || !sliders[i]) return;  // at its end: it follows
      sliders[i].value = value;
      sliders[i].dispatchEvent(new Event("input"));
    });
    if (kept.top) window.scrollTo(0, kept.top);
  } catch (refused) { }
  const keep = () => {
    try {
      sessionStorage.setItem(key, JSON.stringify({
        chosen: all(".choice > input:checked").map(input => input.id), open: folds.map(fold => fold.open),
        sliders: sliders.map(input => input.value === input.max ? null : input.value), top: window.scrollY
      }));
    } catch (refused) { }
  };

  const written = Number(status.dataset.written), every = Number(status.dataset.every);
  const patience = Math.max(60, 20 * every), out = status.querySelector(".age");
  let silent = false;
  const old = () => Math.max(0, Date.now() / 1000 - written);
  const words = s => s < 120 ? Math.floor(s) + " s" : s < 7200 ? Math.floor(s / 60) + " min" : Math.floor(s / 3600) + " h";
  const tell = () => {
    const why = silent ? "; the server does not answer" : old() > patience ? ": it may have been killed" : "";
    out.textContent = " \u00b7 written " + words(old()) + " ago" + why;
  };
  const again = () => {
    // Not while nobody looks, and not while a reader marks a text.
    if (document.hidden || !getSelection().isCollapsed) return setTimeout(again, 1000);
    const load = () => { keep(); location.reload(); };
    if (location.protocol === "file:") return load();
    const miss = () => { silent = true; tell(); setTimeout(again, 1000 * every); };
    fetch(location.href, { method: "HEAD", cache: "no-store" }).then(answer => answer.ok ? load() : miss(), miss);
  };
  tell();
  setInterval(tell, 1000);
  setTimeout(again, 1000 * (old() > patience ? Math.max(60, every) : every));
})();
