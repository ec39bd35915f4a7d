// The console's own script: plots, the pause of the refresh, ticks, streams. Pages work without it, plots apart.
(() => {
  "use strict";

  const $ = (id) => document.getElementById(id);
  const live = $("live");

  // What the refresh must leave alone: opened details, and ticks (htmx #4030: a checkbox that is reused
  // for another row keeps its tick).
  htmx.registerExtension("console", {
    htmx_before_morph_attr: (elt, detail) => !(elt.tagName === "DETAILS" && detail.attrName === "open"),
    htmx_before_morph_node: (elt, detail) => {
      if (elt.tagName === "INPUT" && elt.type === "checkbox" && elt.value !== detail.newNode.value) {
        elt.checked = detail.newNode.defaultChecked;
      }
      return true;
    },
  });

  // Refresh: paused by the button, and while nobody looks.
  const pause = $("pause");
  let paused = false;
  if (pause && live) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.setAttribute("aria-pressed", String(paused));
      pause.textContent = paused ? "Refresh again" : "Stop refreshing";
    });
    document.addEventListener("htmx:before:request", (e) => {
      if (e.target === live && (paused || document.hidden)) e.preventDefault();
    });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && !paused) htmx.trigger(live, "every", {}, false);
    });
  }

  // The banner when the console itself is gone: the relay that it is in, or the command.
  const offline = $("offline");
  const age = () => {
    const made = $("made");
    if (!made) return "";
    const s = Math.max(0, Math.round((Date.now() - Date.parse(made.dateTime)) / 1000));
    const text = s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h`;
    return ` This page is ${text} old.`;
  };
  const gone = (is) => {
    if (!offline) return;
    offline.textContent = is ? "The console does not answer: is the relay running?" + age() : "";
    offline.hidden = !is;
  };
  document.addEventListener("htmx:error", () => gone(true));
  document.addEventListener("htmx:after:swap", () => {
    gone(false);
    draw();
    countTicks();
  });

  // Plots.
  const plots = new Map(); // of elements with data-plot
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
  // A state has one colour in all plots, whatever else they show.
  const colourOf = { accepted: 0, due: 0, delivered: 1, active: 1, deferred: 2, bounced: 3, held: 4, waiting: 5 };
  const si = (v, unit) => {
    if (v == null) return "–";
    if (unit === "s" && v < 1) return +(v * 1000).toPrecision(3) + "ms";
    if (unit === "B") {
      const units = ["", "K", "M", "G", "T"];
      let i = 0;
      while (v >= 1024 && i < 4) { v /= 1024; i++; }
      return +v.toPrecision(3) + units[i];
    }
    const [div, s] = v >= 1e9 ? [1e9, "G"] : v >= 1e6 ? [1e6, "M"] : v >= 1e4 ? [1e3, "k"] : [1, ""];
    return +(v / div).toPrecision(3) + s + unit;
  };

  const dataOf = (p) => {
    const n = Math.max(0, ...p.series.map((s) => s.values.length));
    const x = Array.from({ length: n }, (_, i) => p.start + i * p.step);
    let below = x.map((_, i) => (p.series.every((s) => s.values[i] == null) ? null : 0)); // unknown is not zero
    const ys = p.series.map((s) => {
      if (!p.stacked) return s.values;
      below = below.map((v, i) => (v == null ? null : v + (s.values[i] ?? 0)));
      return below;
    });
    return [x, ...ys];
  };

  const optionsOf = (elt, p) => {
    const colours = [1, 2, 3, 4, 5, 6].map((i) => style(`--plot-${i}`));
    const colour = (s, i) => colours[colourOf[s.name] ?? i % 6];
    const span = p.step * Math.max(1, ...p.series.map((s) => s.values.length));
    const time = (t, len) => new Date(t * 1e3).toISOString().slice(...(span > 172800 ? [5, 10] : [11, len]));
    const axis = { stroke: style("--muted"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line"), width: 1 }, font: "11px system-ui, sans-serif" };
    return {
      width: elt.clientWidth, height: 170,
      tzDate: (t) => uPlot.tzDate(new Date(t * 1e3), "Etc/UTC"),
      cursor: { drag: { x: false, y: false }, sync: { key: "console" } },
      legend: { live: true },
      scales: { y: { distr: p.log ? 3 : 1, range: p.log ? undefined : (u, lo, hi) => [0, hi > 0 ? hi * 1.1 : 1] } },
      axes: [
        { ...axis, space: 70, values: (u, ticks) => ticks.map((t) => time(t, 16)).map((s, i, all) => (s === all[i - 1] ? "" : s)) },
        { ...axis, size: 56, values: (u, ticks) => ticks.map((v) => (v == null ? "" : si(v, p.unit))) },
      ],
      bands: p.stacked ? p.series.slice(1).map((_, i) => ({ series: [i + 2, i + 1] })) : [],
      series: [
        { value: (u, v) => (v == null ? "–" : new Date(v * 1e3).toISOString().slice(span > 86400 ? 5 : 11, 19).replace("T", " ")) },
        ...p.series.map((s, i) => ({
          label: s.name, stroke: colour(s, i), width: 1.5, dash: dashes[i % 4],
          fill: p.stacked ? colour(s, i) + "40" : undefined,
          points: { show: false },
          value: (u, v, si_, at) => si(at == null ? null : s.values[at], p.unit),
        })),
      ],
    };
  };

  const draw = () => {
    for (const [elt, has] of plots) {
      if (!elt.isConnected) {
        has.plot.destroy();
        plots.delete(elt);
      }
    }
    for (const elt of document.querySelectorAll("[data-plot]")) {
      const text = elt.dataset.plot;
      const has = plots.get(elt);
      if (has && has.text === text) continue;
      const p = JSON.parse(text);
      const names = JSON.stringify(p.series.map((s) => s.name));
      if (has && has.names === names && !p.stacked) {
        has.series.forEach((s, i) => { s.values = p.series[i].values; });
        has.plot.setData(dataOf(p));
        has.text = text;
        continue;
      }
      has?.plot.destroy();
      elt.replaceChildren();
      plots.set(elt, { text, names, series: p.series, plot: new uPlot(optionsOf(elt, p), dataOf(p), elt) });
    }
  };
  const redraw = () => {
    for (const has of plots.values()) has.plot.destroy();
    plots.clear();
    draw();
  };
  dark.addEventListener("change", redraw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) {
      width = innerWidth;
      for (const [elt, has] of plots) has.plot.setSize({ width: elt.clientWidth, height: 170 });
    }
  });

  // Ticks: a box with data-ticks="NAME" ticks all of that name; an element with data-ticked="NAME" counts them.
  const ticksOf = (name) => [...document.querySelectorAll('input[type="checkbox"]')].filter((b) => b.name === name);
  const countTicks = () => {
    for (const elt of document.querySelectorAll("[data-ticked]")) {
      const boxes = ticksOf(elt.dataset.ticked);
      elt.textContent = `${boxes.filter((b) => b.checked).length} of ${boxes.length} ticked`;
    }
  };
  document.addEventListener("change", (e) => {
    const name = e.target.dataset?.ticks;
    if (name) for (const b of ticksOf(name)) b.checked = e.target.checked;
    countTicks();
  });

  // Streams: an element with data-stream="URL" gets each event in front, data-keep of them at most.
  for (const elt of document.querySelectorAll("[data-stream]")) {
    const keep = Number(elt.dataset.keep || 200);
    const note = $(elt.dataset.note);
    const source = new EventSource(elt.dataset.stream);
    const say = (text) => { if (note) note.textContent = text; };
    source.onopen = () => say("Following.");
    source.onmessage = (e) => {
      if (paused) return;
      const t = document.createElement("template");
      t.innerHTML = e.data;
      elt.prepend(t.content);
      while (elt.children.length > keep) elt.lastElementChild.remove();
    };
    source.addEventListener("failure", (e) => { say(e.data); source.close(); });
    source.onerror = () => say(source.readyState === EventSource.CLOSED ? "Not following: too many streams are open, or the session has ended." : "The connection is lost; trying again.");
    addEventListener("pagehide", () => source.close());
  }

  // Only what follows something can be paused if nothing is refreshed.
  if (pause && !live && !document.querySelector("[data-stream]")) pause.hidden = true;

  draw();
  countTicks();
})();
