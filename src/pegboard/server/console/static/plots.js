// Plots of the usage page; the tables have the same numbers.
(() => {
  "use strict";
  const plots = document.querySelector("[data-plot]");
  if (!plots) return;
  plots.hidden = false;
  const data = JSON.parse(plots.dataset.plot);
  const colours = { calls: "--fill", errors: "--bad", p50: "--fill", p95: "--asks" };
  const draw = () => {
    // Canvases do not know light-dark(), so a property that does asks for each colour.
    const probe = document.createElement("i");
    plots.append(probe);
    const shown = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
    const axis = { stroke: shown("--dim"), grid: { stroke: shown("--line"), width: 1 }, ticks: { stroke: shown("--line"), width: 1 } };
    for (const place of plots.querySelectorAll("[data-lines]")) {
      const names = place.dataset.lines.split(" ");
      place.replaceChildren();
      new uPlot({
        width: Math.max(place.clientWidth, 200), height: 190, cursor: { drag: { x: false, y: false } },
        legend: { live: true }, scales: { y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.05] } },
        axes: [axis, { ...axis, size: 54 }],
        series: [{}, ...names.map((name) => ({ label: name, stroke: shown(colours[name]), width: 2, points: { show: data[name].filter((one) => one != null).length < 3 }, spanGaps: false }))],
      }, [data.at, ...names.map((name) => data[name])], place);
    }
    probe.remove();
  };
  draw();
  let waiting = 0;
  const again = () => { clearTimeout(waiting); waiting = setTimeout(draw, 100); };
  addEventListener("resize", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
})();
