// What the first screen of a page shows, as SVG whose letters are text: boxes, lines of text and figures.
// docs/make_screenshots.py runs it in a page as toSvg(width, height).
function toSvg(width, height) {
  const out = [], ruler = document.createElement("canvas").getContext("2d");
  const short = value => Number(value.toFixed(1));
  const escaped = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");
  const visible = colour => colour !== "transparent" && !/^rgba.*, 0\)$/.test(colour);

  function rect(box, look) {
    const [x, y, w, h] = [box.x, box.y, box.width, box.height].map(short);
    out.push(`<rect x="${x}" y="${y}" width="${w}" height="${h}" ${look}/>`);
  }

  function paint(box, style) {
    const sides = ["Top", "Right", "Bottom", "Left"].map(side => ({
      size: style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`]),
      colour: style[`border${side}Color`],
    }));
    const [top, right, bottom, left] = sides;
    const all = sides.every(side => side.size && side.size === top.size && side.colour === top.colour);
    const fill = visible(style.backgroundColor) ? style.backgroundColor : "none";
    const radius = parseFloat(style.borderTopLeftRadius) || 0;
    const round = radius ? ` rx="${short(Math.min(radius, box.height / 2))}"` : "";
    if (all) rect(box, `fill="${fill}" stroke="${top.colour}" stroke-width="${top.size}"${round}`);
    else if (fill !== "none") rect(box, `fill="${fill}"${round}`);
    if (all) return;
    const thin = (x, y, w, h, side) => { // a border of one side
      if (side.size && visible(side.colour)) rect({ x, y, width: w, height: h }, `fill="${side.colour}"`);
    };
    thin(box.x, box.y, box.width, top.size, top);
    thin(box.x, box.bottom - bottom.size, box.width, bottom.size, bottom);
    thin(box.x, box.y, left.size, box.height, left);
    thin(box.right - right.size, box.y, right.size, box.height, right);
  }

  function line(words, x, right, top, style) {
    ruler.font = style.font;
    const size = short(parseFloat(style.fontSize)), weight = Number(style.fontWeight);
    const lined = style.textDecorationLine.includes("underline") ? ' text-decoration="underline"' : "";
    const heavy = weight > 400 ? ` font-weight="${weight}"` : "";
    const slanted = style.fontStyle === "italic" ? ' font-style="italic"' : "";
    const where = `x="${short(x)}" y="${short(top + ruler.measureText("x").fontBoundingBoxAscent)}"`;
    // Whatever font the reader has, a line is as long as it was here.
    const long = words.length > 1 ? ` textLength="${short(right - x)}" lengthAdjust="spacingAndGlyphs"` : "";
    const look = `fill="${style.color}" font-size="${size}"${heavy}${slanted}${lined}${long}`;
    out.push(`<text ${where} ${look}>${escaped(words)}</text>`);
  }

  function write(node, style) {
    let held = null;
    for (const word of node.data.matchAll(/\S+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const box = range.getBoundingClientRect();
      if (held && Math.abs(held.top - box.top) < 2) {
        held.words += ` ${word[0]}`;
        held.right = box.right;
        continue;
      }
      if (held) line(held.words, held.x, held.right, held.top, style);
      held = { words: word[0], x: box.x, right: box.right, top: box.top };
    }
    if (held && held.top < height) line(held.words, held.x, held.right, held.top, style);
  }

  function draw(figure, box) {
    const copy = figure.cloneNode(true), [w, h] = [figure.clientWidth, figure.clientHeight];
    if (!copy.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${w} ${h}`);
    copy.removeAttribute("style");
    const place = { x: short(box.x), y: short(box.y), width: short(box.width), height: short(box.height) };
    for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
    out.push(new XMLSerializer().serializeToString(copy));
  }

  function walk(node) {
    if (!node.checkVisibility()) return;
    const box = node.getBoundingClientRect(), style = getComputedStyle(node);
    if (box.height && box.top > height) return;
    if (node.tagName === "svg") { draw(node, box); return; }
    if (box.width && style.display !== "contents") paint(box, style);
    if (node.tagName === "SUMMARY") line(node.parentNode.open ? "▾" : "▸", box.x, box.x, box.top, style);
    for (const each of node.childNodes) {
      if (each.nodeType === Node.TEXT_NODE) write(each, style);
      else if (each.nodeType === Node.ELEMENT_NODE) walk(each);
    }
  }

  rect({ x: 0, y: 0, width, height }, `fill="${getComputedStyle(document.body).backgroundColor}"`);
  for (const each of document.body.children) walk(each);
  rect({ x: 0.5, y: 0.5, width: width - 1, height: height - 1 }, 'fill="none" stroke="#c4cad3"');
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  const font = 'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif"';
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${font}>\n${out.join("\n")}\n</svg>\n`;
}
