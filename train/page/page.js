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
