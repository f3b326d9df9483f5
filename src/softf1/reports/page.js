"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const coarse = matchMedia("(pointer: coarse)").matches;   // a finger scrolls, it does not zoom plots
  const canvases = [...document.querySelectorAll(".canvas")];
  const PAGE = 25;      // examples shown at a time
  const ROWS = 500;     // rows of a table behind a plot; the CSV has all
  const PRINT = 640;    // width of a plot on paper

  function make(tag, properties, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  // ---- theme: as the system says until the button is used
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  function setTheme(dark) {
    root.dataset.theme = dark ? "dark" : "light";
    button.setAttribute("aria-pressed", String(dark));
  }
  setTheme(system.matches);

  // ---- plots
  // Colours in the figures are names of the style sheet; only values of colour keys are looked up,
  // so that no text from data can be taken for one.
  function paint(value, style, isColor = false) {
    if (typeof value === "string") {
      return isColor && value.startsWith("var(") ? style.getPropertyValue(value.slice(4, -1)).trim() : value;
    }
    if (Array.isArray(value)) return isColor ? value.map((item) => paint(item, style, true)) : value;
    if (value === null || typeof value !== "object") return value;
    const out = {};
    for (const [key, item] of Object.entries(value)) {
      out[key] = key === "shapes" ? item.map((one) => paint(one, style)) : paint(item, style, /color/i.test(key));
    }
    return out;
  }

  function layoutOf(figure, style, width) {
    const color = (name) => style.getPropertyValue(name).trim();
    const ink = color("--ink-2");
    const axis = { gridcolor: color("--rule"), linecolor: color("--rule"), zerolinecolor: color("--rule"), tickcolor: color("--rule"), automargin: true };
    const own = paint(figure.layout, style);
    const side = (one) => ({ ...axis, ...one, title: { standoff: 10, font: { size: 12 }, ...(one && one.title) } });
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 48, r: 12, t: 12, b: 44 },
      hoverlabel: { bgcolor: color("--panel"), bordercolor: color("--rule"), font: { color: color("--ink"), size: 13 }, align: "left" },
      showlegend: false,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--ink-3"), activecolor: color("--ink") },
      dragmode: coarse ? false : "zoom",
      hovermode: "closest",
      ...own,
      xaxis: side(own.xaxis),
      yaxis: side(own.yaxis),
      ...(width ? { width, autosize: false } : { autosize: true }),
    };
  }

  // The legend is buttons of our own: Plotly's cannot be reached by keyboard. A trace with `meta`,
  // the text as it stands in the data, has a button, which shows and hides its whole group.
  const GLYPHS = { x: "✕", circle: "●", square: "■", diamond: "◆", "triangle-up": "▲", "triangle-down": "▼", pentagon: "⬟", star: "★", hexagon: "⬢" };
  const hidden = {};   // figure → groups that are not shown
  function drawKeys(canvas, traces) {
    const place = canvas.parentNode.querySelector(".keys");
    const off = hidden[canvas.id];
    place.replaceChildren(...traces.filter((trace) => "meta" in trace).map((trace) => {
      const marked = trace.mode.includes("markers");
      const glyph = make("span", { className: "glyph", ariaHidden: "true" }, marked ? GLYPHS[trace.marker.symbol] || "●" : "━");
      glyph.style.color = marked ? trace.marker.color : trace.line.color;
      const key = make("button", { type: "button", className: "key" }, glyph, trace.meta);
      key.setAttribute("aria-pressed", String(!off.has(trace.legendgroup)));
      key.addEventListener("click", () => {
        const shown = off.delete(trace.legendgroup);
        if (!shown) off.add(trace.legendgroup);
        key.setAttribute("aria-pressed", String(shown));
        draw(canvas);
      });
      return key;
    }));
  }

  function tracesOf(canvas) {
    const figure = data.figures[canvas.id];
    const chooser = document.querySelector(`select[data-view="${canvas.id}"]`);
    const traces = chooser ? figure.views[Number(chooser.value)].data : figure.data;
    hidden[canvas.id] ??= new Set(traces.filter((trace) => trace.visible === false).map((trace) => trace.legendgroup));
    return traces;
  }

  function draw(canvas, width) {
    const style = getComputedStyle(root);
    const traces = tracesOf(canvas).map((trace) => ({ ...paint(trace, style), visible: !hidden[canvas.id].has(trace.legendgroup) }));
    return Plotly.react(canvas, traces, layoutOf(data.figures[canvas.id], style, width), {
      displaylogo: false,
      displayModeBar: coarse ? false : "hover",
      responsive: !width,
      // Named one by one: Plotly's own list has a button that sends the plot to a server.
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
      plotlyServerURL: "",
      toImageButtonOptions: { format: "svg", filename: canvas.id },
    });
  }
  function start(canvas) {
    drawKeys(canvas, tracesOf(canvas));
    draw(canvas);
  }
  const drawn = () => canvases.filter((canvas) => canvas.classList.contains("js-plotly-plot"));
  const redraw = () => drawn().forEach((canvas) => draw(canvas));

  button.addEventListener("click", () => { setTheme(root.dataset.theme !== "dark"); redraw(); });
  system.addEventListener("change", () => { setTheme(system.matches); redraw(); });
  for (const chooser of document.querySelectorAll("select[data-view]")) {
    chooser.addEventListener("change", () => start(document.getElementById(chooser.dataset.view)));
  }
  // Paper is light and has its own width.
  let before = null;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    setTheme(false);
    canvases.forEach((canvas) => draw(canvas, PRINT));
  });
  addEventListener("afterprint", () => {
    setTheme(before === "dark");
    redraw();
  });
  // One plot a turn, so that the page can be read and scrolled from the start.
  canvases.forEach((canvas) => { canvas.style.minHeight = `${canvas.dataset.height}px`; });
  function drawNext(place) {
    if (place === canvases.length) { root.dataset.ready = "yes"; return; }
    start(canvases[place]);
    setTimeout(drawNext, 0, place + 1);
  }
  setTimeout(drawNext, 0, 0);

  // ---- tables
  const HUNDREDTHS = { score: 2, points: 2, share: 1, chance: 0 };
  function show(value, kind) {
    if (value === null || value === undefined) return "–";
    if (kind === "text" || typeof value !== "number") return String(value);
    if (kind in HUNDREDTHS) {
      const text = (100 * value).toFixed(HUNDREDTHS[kind]).replace("-", "−");
      return kind === "points" && value >= 0 ? `+${text}` : text;
    }
    if (kind === "seconds") return value.toFixed(1);
    if (kind === "int") return Math.round(value).toLocaleString("en");
    return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 6 }).replace("-", "−");
  }
  function buildTable(name) {
    const { caption, columns, rows } = data.tables[name];
    const kindClass = (kind) => (kind === "text" ? "" : "number");
    const head = make("tr", {}, ...columns.map(([, title, kind]) =>
      make("th", { scope: "col", className: kindClass(kind) }, make("button", { type: "button", className: "sort" }, title))));
    const body = make("tbody", {}, ...rows.slice(0, ROWS).map((row) => make("tr", {}, ...row.map((value, place) => {
      const kind = columns[place][2];
      const cell = make(place ? "td" : "th", { className: kindClass(kind) }, show(value, kind));
      if (!place) cell.scope = "row";
      cell.dataset.value = value === null ? "" : value;
      return cell;
    }))));
    const cut = rows.length > ROWS ? ` (first ${ROWS} of ${rows.length.toLocaleString("en")}; the CSV has all)` : "";
    const table = make("table", { className: "data" }, make("caption", {}, caption + cut), make("thead", {}, head), body);
    const scroll = make("div", { className: "scroll", tabIndex: 0 }, table);
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", caption);
    const csv = make("button", { type: "button", className: "csv" }, "Download as CSV");
    csv.dataset.csv = name;
    return [scroll, make("p", { className: "below" }, csv)];
  }
  for (const details of document.querySelectorAll("details.behind")) {
    details.addEventListener("toggle", () => {
      const place = details.querySelector(".lazy");
      if (details.open && !place.firstChild) place.append(...buildTable(place.dataset.build));
    });
  }

  function sortTable(header) {
    const table = header.closest("table");
    const place = [...header.parentNode.children].indexOf(header);
    const numeric = header.classList.contains("number");
    const now = header.getAttribute("aria-sort");
    const up = now ? now === "descending" : !numeric;
    for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.children[place].dataset.value;
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");   // what is missing comes last
      const order = numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true });
      return up ? order : -order;
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(compare));
  }

  // ---- CSV
  // A spreadsheet runs text that begins like a formula: an apostrophe keeps it text.
  function field(value) {
    if (value === null || value === undefined) return "";
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  function toCsv(name) {
    const { columns, rows } = data.tables[name];
    return [columns.map(([key]) => key), ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
  }
  function download(name) {
    // The mark at the start tells spreadsheets that the text is UTF-8.
    const blob = new Blob(["\ufeff", toCsv(name)], { type: "text/csv;charset=utf-8" });
    const link = make("a", { href: URL.createObjectURL(blob), download: `${name}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  document.addEventListener("click", (event) => {
    const sort = event.target.closest(".sort");
    if (sort) sortTable(sort.closest("th"));
    const csv = event.target.closest("[data-csv]");
    if (csv) download(csv.dataset.csv);
  });

  // ---- changed examples
  const list = document.getElementById("changes");
  if (list) {
    const query = document.getElementById("query");
    const direction = document.getElementById("direction");
    const more = document.getElementById("more");
    const output = document.getElementById("matches");
    const items = [...list.children].map((element) => [element, element.textContent.toLowerCase()]);
    let limit = PAGE;
    const refresh = () => {
      const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
      let found = 0;
      for (const [element, text] of items) {
        const fits = words.every((word) => text.includes(word)) && (!direction.value || element.classList.contains(direction.value));
        found += fits;
        element.hidden = !fits || found > limit;
      }
      output.textContent = `${Math.min(found, limit)} of ${found} shown`;
      more.hidden = found <= limit;
    };
    for (const control of [query, direction]) control.addEventListener("input", () => { limit = PAGE; refresh(); });
    more.addEventListener("click", () => { limit += PAGE; refresh(); });
    document.getElementById("find").addEventListener("submit", (event) => event.preventDefault());
    refresh();
  }
})();
