"use strict";
const COLOURS = ["#3b6fd4", "#d9672b", "#2f9e6e", "#b04fb0", "#b8912a", "#4aa3b8", "#c2455f", "#7a7f8c"];

function themed(layout) {
  const style = getComputedStyle(document.body);
  const line = style.getPropertyValue("--line").trim();
  const base = { gridcolor: line, zerolinecolor: line, linecolor: line };
  const small = innerWidth < 600;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", colorway: COLOURS,
    font: { family: style.fontFamily, color: style.color, size: small ? 11 : 12 },
    margin: { l: 50, r: 14, t: 12, b: 44 }, legend: { orientation: "h", y: -0.26, yanchor: "top" },
    ...layout, xaxis: { ...base, ...layout.xaxis }, yaxis: { ...base, ...layout.yaxis },
  };
}

// Plotly would measure its box only later, and forget to where a chart is drawn anew in between.
const sized = box => ({ width: box.clientWidth, height: box.clientHeight });

function draw(place, name, title, caption, data, layout) {
  const figure = document.createElement("figure");
  const head = document.createElement("h3");
  const box = document.createElement("div");
  head.textContent = title;
  figure.dataset.name = name;
  figure.append(head, box);
  if (caption) {
    const words = document.createElement("figcaption");
    words.textContent = caption;
    figure.append(words);
  }
  place.append(figure);
  if (!data.length) { box.remove(); return null; }
  if (layout.height) box.style.height = `${layout.height}px`;
  // Choice: no bar of buttons over the chart. It would hide the legend, and a finger cannot hover.
  const whiskers = getComputedStyle(document.body).color;
  for (const each of data) if (each.error_y) each.error_y.color = whiskers;
  const fitted = new ResizeObserver(() => { if (box.clientWidth) Plotly.relayout(box, sized(box)); });
  Plotly.newPlot(box, data, { ...themed(layout), ...sized(box) }, { displaylogo: false, displayModeBar: false })
    .then(() => fitted.observe(box));
  const take = document.createElement("p");
  take.className = "take";
  for (const format of ["png", "svg"]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = format.toUpperCase();
    button.title = `Download this figure as ${format.toUpperCase()}`;
    const size = { width: 1000, height: 560, scale: format === "png" ? 2 : 1 };
    button.addEventListener("click", () =>
      Plotly.downloadImage(box, { format, filename: `fedepd-${name}`, ...size }));
    take.append(button);
  }
  figure.append(take);
  return box;
}

async function drawFigures(place) {
  const answer = await fetch(place.dataset.figures);
  const found = await answer.json();
  for (const each of found.figures) draw(place, each.name, each.title, each.caption, each.data, each.layout);
  if (found.why) {
    const words = document.createElement("p");
    words.className = "warned";
    words.textContent = found.why;
    place.before(words);
  }
  place.dataset.drawn = found.figures.length;
}

// --- a run as it goes on ---

const MEASURES = { acc: "accuracy", bacc: "balanced accuracy", macro_f1: "macro-F1" };

function liveCharts(place) {
  const curves = {
    val: { title: "Validation scores", unit: "percent", traces: new Map() },
    loss: { title: "Loss", unit: "loss", traces: new Map() },
    bytes: { title: "Bytes per round", unit: "MiB", traces: new Map() },
    seconds: { title: "Seconds per round", unit: "seconds", traces: new Map() },
  };
  let waiting = false;
  function add(curve, name, x, y) {
    if (y === null || y === undefined) return;
    const traces = curves[curve].traces;
    if (!traces.has(name)) {
      const shown = curve !== "val" || name.endsWith("macro-F1") || name.endsWith("balanced accuracy");
      traces.set(name, {
        type: "scatter", mode: curve === "val" ? "lines+markers" : "lines", name, x: [], y: [],
        visible: shown ? true : "legendonly",
      });
    }
    traces.get(name).x.push(x);
    traces.get(name).y.push(y);
    if (!waiting) { waiting = true; setTimeout(redraw, 60); }
  }
  function redraw() {
    waiting = false;
    for (const [name, curve] of Object.entries(curves)) {
      // Plotly takes an array that it has seen for one that has not changed, so it gets new ones.
      const data = [...curve.traces.values()].map(each => ({ ...each, x: [...each.x], y: [...each.y] }));
      if (!data.length) continue;
      const last = Math.max(...data.map(each => each.x[each.x.length - 1]));
      const layout = {
        xaxis: { title: { text: "round", standoff: 6 }, ...(last <= 12 ? { dtick: 1 } : {}) }, yaxis: { title: { text: curve.unit }, rangemode: "tozero" },
        showlegend: data.length > 1, uirevision: "kept",
      };
      const again = curve.box && { ...themed(layout), ...sized(curve.box) };
      if (again) Plotly.react(curve.box, data, again);
      else curve.box = draw(place, name, curve.title, "", data, layout);
    }
    place.dataset.drawn = Math.max(0, ...[...curves.loss.traces.values()].map(each => each.x.length));
  }
  return line => {
    add("loss", "loss", line.round, line.loss);
    add("seconds", "seconds", line.round, line.seconds);
    add("bytes", "to the server", line.round, line.bytes_up / 2 ** 20);
    add("bytes", "to the clients", line.round, line.bytes_down / 2 ** 20);
    for (const [model, scores] of Object.entries(line.val)) {
      for (const [name, words] of Object.entries(MEASURES)) {
        if (typeof scores[name] === "number") add("val", `${model}, ${words}`, line.round, 100 * scores[name]);
      }
    }
  };
}

function follow(place) {
  const source = new EventSource(place.dataset.events), add = liveCharts(place);
  const begunAs = place.dataset.state;
  source.addEventListener("round", event => {
    const line = JSON.parse(event.data);
    document.getElementById("round").textContent = line.round;
    add(line);
  });
  source.addEventListener("state", event => {
    const state = JSON.parse(event.data).state;
    if (state !== begunAs && (state === "running" || begunAs === "running")) { location.reload(); return; }
    document.getElementById("state").textContent = state;
  });
  source.addEventListener("end", event => {
    source.close();
    if (JSON.parse(event.data).state !== begunAs) location.reload();
  });
}

// --- lists ---

function followRows(table) {
  const source = new EventSource(table.dataset.events), body = table.tBodies[0];
  source.addEventListener("rows", event => {
    const known = new Map([...body.rows].map(row => [row.dataset.id, row]));
    for (const [id, html] of Object.entries(JSON.parse(event.data))) {
      const row = known.get(id);
      if (!html) { row?.remove(); continue; }
      const holder = document.createElement("tbody");
      holder.innerHTML = html; // made and escaped by the server
      const fresh = holder.rows[0];
      if (row && row.outerHTML === fresh.outerHTML) continue;
      const ticked = row?.querySelector("input")?.checked;
      if (row) row.replaceWith(fresh); else body.append(fresh);
      if (ticked) fresh.querySelector("input").checked = true;
    }
    count(body);
    table.dataset.live = "yes";
  });
}

function count(body) {
  const words = [...body.querySelectorAll(".state")].map(each => each.textContent);
  const found = [...new Set(words)].map(word => `${words.filter(each => each === word).length} ${word}`);
  document.getElementById("counts").textContent = found.join(", ");
}

function followGrid(place) {
  const source = new EventSource(place.dataset.events);
  source.addEventListener("grid", event => { place.innerHTML = JSON.parse(event.data).grid; });
}

for (const place of document.querySelectorAll("[data-figures]")) drawFigures(place);
for (const place of document.querySelectorAll("#live")) if (place.dataset.state !== "refused") follow(place);
for (const table of document.querySelectorAll("table[data-events]")) followRows(table);
for (const place of document.querySelectorAll("#grid")) followGrid(place);
for (const place of document.querySelectorAll("#wait")) setTimeout(() => location.replace(place.dataset.next), 1000);
for (const box of document.querySelectorAll("select[data-go]")) {
  box.addEventListener("change", () => { location.href = box.dataset.go + encodeURIComponent(box.value); });
}
