// The sizing calculator of docs/guide/calculator.md. site/calculator computes the numbers, as
// WebAssembly, so that they are those of the module; this file reads the form and draws.
"use strict";

(() => {
    const place = document.getElementById("calculator");
    if (!place) return;

    // The number of a kind is its place here, as in site/calculator/src/lib.rs.
    const KINDS = [
        { name: "plain, reserved, grows", grows: true, words: "" },
        { name: "plain, not reserved, grows", grows: true },
        { name: "plain, does not grow (NONSCALING)", grows: false, words: " NONSCALING" },
        { name: "counting: items can be deleted (COUNTING)", grows: true, words: " COUNTING" },
        { name: "window of time (WINDOW EX)", grows: true, window: true, words: " WINDOW EX 86400" },
        { name: "window of the last items (WINDOW COUNT)", grows: false, window: true, words: " WINDOW COUNT" },
    ];
    const UNITS = { "": 1, k: 1e3, m: 1e6, g: 1e9 };
    const POINTS = 80;

    // "2.5M" is 2500000, as for the tool; NaN for what is no number.
    function itemsOf(text) {
        const [, number, unit] = /^\s*([\d.]+)\s*([kmg]?)\s*$/i.exec(text) ?? [];
        return Math.round(Number(number) * UNITS[unit?.toLowerCase()]);
    }

    // "0.1%" is 0.001.
    function rateOf(text) {
        const [, number, percent] = /^\s*([\d.]+(?:e-?\d+)?)\s*(%?)\s*$/i.exec(text) ?? [];
        return percent ? Number(number) / 100 : Number(number);
    }

    function readable(bytes) {
        const names = ["bytes", "kB", "MB", "GB", "TB", "PB"];
        const power = Math.min(Math.floor(Math.log10(bytes) / 3), names.length - 1);
        const exact = `${bytes.toLocaleString("en")} bytes`;
        return power < 1 ? exact : `${(bytes / 1000 ** power).toPrecision(3)} ${names[power]} (${exact})`;
    }

    function percent(rate) {
        return rate < 1e-5 ? rate.toExponential(2) : `${Number((rate * 100).toPrecision(3))} %`;
    }

    function element(name, properties = {}, ...children) {
        const made = Object.assign(document.createElement(name), properties);
        made.append(...children);
        return made;
    }

    function svg(name, attributes, text = "") {
        const made = document.createElementNS("http://www.w3.org/2000/svg", name);
        for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
        made.textContent = text;
        return made;
    }

    // The rate against the items, up to `most` times those of a full filter.
    function curve(rate, wanted, most) {
        const [width, height, left, right, top, bottom] = [480, 260, 62, 12, 26, 44];
        const rates = Array.from({ length: POINTS + 1 }, (_, i) => rate((i / POINTS) * most));
        const highest = Math.max(wanted, ...rates) * 1.08;
        const x = (share) => left + ((width - left - right) * share) / most;
        const y = (value) => height - bottom - ((height - top - bottom) * value) / highest;
        const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "calculator-curve" });
        drawn.append(svg("title", {}, "The error rate of the filter as it fills"));
        const line = (x1, y1, x2, y2, more = {}) =>
            drawn.append(svg("line", { x1, y1, x2, y2, stroke: "currentColor", "stroke-width": 1, ...more }));
        const label = (x, y, anchor, text) =>
            drawn.append(svg("text", { x, y, "text-anchor": anchor, fill: "currentColor" }, text));
        line(left, y(0), width - right, y(0));
        line(left, top, left, y(0));
        for (let share = 0; share <= most; share += most / 4) {
            line(x(share), y(0), x(share), y(0) + 4);
            label(x(share), y(0) + 18, share === most ? "end" : "middle", `${share * 100} %`);
        }
        label((left + width - right) / 2, height - 6, "middle", "items in the filter, of those it is planned for");
        label(left - 6, y(0) + 4, "end", "0");
        label(left - 6, y(wanted) + 4, "end", percent(wanted));
        label(left, 14, "start", "error rate; dashed: the one you set");
        line(left, y(wanted), width - right, y(wanted), { "stroke-dasharray": "5 4" });
        const points = rates.map((value, i) => `${x((i / POINTS) * most).toFixed(1)},${y(value).toFixed(1)}`);
        drawn.append(svg("polyline", { points: points.join(" "), fill: "none", stroke: "#2a78d6", "stroke-width": 2.5 }));
        return drawn;
    }

    function show({ bytes, rate }) {
        const kind = element("select", { id: "calculator-kind" });
        KINDS.forEach(({ name }, value) => kind.append(element("option", { value, textContent: name })));
        const items = element("input", { id: "calculator-items", value: "1M" });
        const wanted = element("input", { id: "calculator-rate", value: "0.1%" });
        const generations = element("input", {
            id: "calculator-generations", type: "number", min: 1, max: 32, value: 4,
        });
        const form = element("form", { className: "calculator", onsubmit: () => false });
        const row = (text, field) => {
            const label = element("label", { htmlFor: field.id, textContent: text });
            form.append(label, field);
            return [label, field];
        };
        row("Filter", kind);
        row("Items", items);
        row("Error rate", wanted);
        const ofWindows = row("Generations", generations);
        const output = (text, id) => row(text, element("output", { id: `calculator-${id}` }))[1];
        const memory = output("Memory", "bytes");
        const each = output("Bits an item", "bits");
        const half = output("With half of the items", "half");
        const double = output("With twice the items", "double");
        const full = output("Rate when full", "full");
        const command = output("Command", "command");
        const drawing = element("div");

        function update() {
            const [number, asked, chosen] = [itemsOf(items.value), rateOf(wanted.value), KINDS[kind.value]];
            const parts = Number(generations.value);
            const at = (figure, share) => figure(Number(kind.value), number, asked, parts, share);
            ofWindows.forEach((part) => (part.hidden = !chosen.window));
            const size = at(bytes, 1);
            const is = (out, share) => {
                const size = at(bytes, share);
                out.textContent = Number.isNaN(size) ? "refused" : readable(size);
                out.dataset.bytes = Number.isNaN(size) ? "refused" : size;
            };
            is(half, 0.5);
            is(double, 2);
            if (Number.isNaN(size)) {
                memory.textContent = "Enter 1 to 10G items and a rate between 0 and 1; windows have 1 to 32 generations.";
                memory.dataset.bytes = "refused";
                for (const out of [each, half, double, full, command]) out.textContent = "";
                drawing.replaceChildren();
                return;
            }
            is(memory, 1);
            each.textContent = ((size * 8) / number).toFixed(2);
            full.textContent = percent(at(rate, 1));
            full.dataset.rate = at(rate, 1);
            const parted = chosen.window && parts !== 4 ? ` GENERATIONS ${parts}` : "";
            command.textContent =
                chosen.words === undefined ? "BF.ADD NAME item" : `BF.RESERVE NAME ${asked} ${number}${chosen.words}${parted}`;
            drawing.replaceChildren(curve((share) => at(rate, share), asked, chosen.grows ? 2 : 1));
        }

        form.addEventListener("input", update);
        update();
        place.replaceChildren(form, drawing);
    }

    // A script and not fetch(): browsers refuse that for a page that is opened from a disk.
    const program = element("script", { src: `${path_to_root}calculator-program.js` });
    program.onload = async () => {
        const bytes = Uint8Array.from(atob(calculatorProgram), (char) => char.charCodeAt(0));
        show((await WebAssembly.instantiate(bytes)).instance.exports);
    };
    document.head.append(program);
})();
