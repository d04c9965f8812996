// Plots of the usage page; the tables have the same numbers.
(() => {
  "use strict";
  const plots = document.querySelector("[data-plot]");
  if (!plots) return;
  plots.hidden = false;
  const data = JSON.parse(plots.dataset.plot);
  const colours = { calls: "--mark", errors: "--bad", p50: "--mark", p95: "--asks" };
  const draw = () => {
    // Canvases do not know light-dark(), so a property that does asks for each colour.
    const probe = document.createElement("i");
    document.body.append(probe);
    const shown = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
    const two = (number) => String(number).padStart(2, "0");
    const clock = (at) => { const day = new Date(at * 1000); return `${two(day.getUTCHours())}:${two(day.getUTCMinutes())}`; };
    const date = (at) => new Date(at * 1000).toISOString().slice(5, 10);
    const axis = { stroke: shown("--dim"), grid: { stroke: shown("--line"), width: 1 }, ticks: { stroke: shown("--line"), width: 1 } };
    // The first and the last bar are in the middle of their spans, too.
    const half = data.at.length > 1 ? (data.at[1] - data.at[0]) / 2 : 1;
    for (const place of plots.querySelectorAll("[data-lines]")) {
      const names = place.dataset.lines.split(" ");
      place.replaceChildren();
      new uPlot({
        width: Math.max(place.clientWidth, 200), height: 180, cursor: { drag: { x: false, y: false } },
        legend: { live: true }, scales: { x: { range: (_, first, last) => [first - half, last + half] }, y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.05] } },
        axes: [{ ...axis, size: 30, values: (_, ticks, __, ___, step) => ticks.map((at) => (step >= 43200 ? date(at) : clock(at))) }, { ...axis, size: 54 }],
        tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
        series: [{ label: "UTC", value: (_, at) => (at == null ? "" : `${date(at)} ${clock(at)}`) }, ...names.map((name) => ({ label: name, value: (_, count) => (count == null ? "" : count.toLocaleString("en-US")), stroke: shown(colours[name]), fill: shown(colours[name]), width: 0, paths: uPlot.paths.bars({ size: [0.7, 24] }), points: { show: false } }))],
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
