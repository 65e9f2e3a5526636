// The site of scripts/site in headless Chromium, opened from the disk, at the width of a phone. A page may
// have no broken link, no error in the console, no picture that does not show, and may not scroll
// sideways.
//
// SITE is the directory of the site, REDIS_BLOOM_TOOL the tool, whose plans the calculator must show, too.
"use strict";

const { after, before, test } = require("node:test");
const assert = require("node:assert");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const { fileURLToPath, pathToFileURL } = require("node:url");
const { chromium } = require("playwright-core");

const SITE = path.resolve(process.env.SITE);
const TOOL = process.env.REDIS_BLOOM_TOOL;
const PHONE = { width: 390, height: 844 };

const all = fs.readdirSync(SITE, { recursive: true });
// The sidebar of browsers without scripts is no page.
const pages = all.filter((name) => name.endsWith(".html") && name !== "toc.html");

let browser, page;
// What went wrong since the last page was opened.
let faults = [];

before(async () => {
    const names = ["chromium-headless-shell", "chromium"].map((name) => `/usr/bin/${name}`);
    browser = await chromium.launch({ executablePath: names.find((name) => fs.existsSync(name)) });
    page = await browser.newPage({ viewport: PHONE });
    page.on("console", (message) => {
        if (message.type() === "error") faults.push(message.text());
    });
    page.on("pageerror", (error) => faults.push(error.message));
    page.on("request", (request) => {
        if (!/^(file|data|blob):/.test(request.url())) faults.push(`asks for ${request.url()}`);
    });
    page.on("requestfailed", (request) => faults.push(`not loaded: ${request.url()}`));
});

after(() => browser?.close());

async function open(name, query = "") {
    faults = [];
    await page.goto(pathToFileURL(path.join(SITE, name)).href + query);
    await page.waitForFunction(() => document.readyState === "complete");
}

test("pages load, show their pictures and fit on a phone, and their links lead somewhere", async () => {
    const found = {};
    const broken = [];
    for (const name of pages) {
        await open(name);
        found[name] = await page.evaluate(() => ({
            anchors: [...document.querySelectorAll("[id], a[name]")].map((e) => e.id || e.name),
            links: [...document.querySelectorAll("a[href]")].map((link) => link.href),
            hidden: [...document.images].filter((image) => image.naturalWidth === 0).map((image) => image.src),
            wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
            title: document.querySelector("main h1")?.textContent,
        }));
        const { hidden, wider, title } = found[name];
        broken.push(...faults.map((fault) => `${name}: ${fault}`));
        broken.push(...hidden.map((picture) => `${name}: shows no ${picture}`));
        if (wider > 0) broken.push(`${name}: ${wider} pixels wider than a phone`);
        if (!title) broken.push(`${name}: no heading`);
    }
    let checked = 0;
    for (const [name, { links }] of Object.entries(found)) {
        for (const link of new Set(links)) {
            const url = new URL(link);
            if (url.protocol !== "file:") continue;
            checked += 1;
            const anchor = decodeURIComponent(url.hash.slice(1));
            url.hash = url.search = "";
            const target = path.relative(SITE, fileURLToPath(url));
            const file = all.includes(target) && fs.statSync(path.join(SITE, target)).isFile();
            if (!file) broken.push(`${name}: ${link}: no such file`);
            else if (anchor && !found[target]?.anchors.includes(anchor)) broken.push(`${name}: ${link}: no such heading`);
        }
    }
    assert.deepStrictEqual(broken, []);
    assert.ok(pages.length > 20 && checked > 1000, `${pages.length} pages, ${checked} links`);
});

test("the sidebar leads to each page", async () => {
    await open("index.html");
    const chapters = "mdbook-sidebar-scrollbox a[href]:not(.chapter-fold-toggle)";
    await page.waitForSelector(chapters, { state: "attached" });
    const links = await page.$$eval(chapters, (links) => links.map((link) => link.href.replace(/[?#].*/, "")));
    const targets = links.filter(Boolean).map((link) => path.relative(SITE, fileURLToPath(link)));
    assert.deepStrictEqual([...new Set(targets)].sort(), pages.toSorted());
});

test("search finds BF.MERGE in the commands", async () => {
    await open("index.html", "?search=BF.MERGE");
    const results = "#mdbook-searchresults a, #searchresults a";
    await page.waitForSelector(results);
    const links = await page.$$eval(results, (links) => links.map((link) => link.href));
    assert.ok(links.some((link) => /reference\/commands\.html.*#bfmerge/.test(link)), links.join("\n"));
    assert.deepStrictEqual(faults, []);
});

// Of each kind of filter: its number in the list of the page, and the options of the tool.
const KINDS = [
    [0, () => []],
    [1, () => ["--initial", "100"]],
    [2, () => ["--nonscaling"]],
    [3, () => ["--counting"]],
    [4, (generations) => ["--window", "24h", "--generations", generations]],
    [5, (generations) => ["--window", "count", "--generations", generations]],
];
const SIZES = [
    ["1", "0.01", "4"], ["101", "50%", "1"], ["1000", "5%", "2"], ["12345", "1e-9", "3"], ["1M", "0.1%", "4"],
    ["30M", "0.01", "12"], ["2.5G", "1e-6", "32"], ["10G", "0.001", "4"],
];

test("the calculator shows the numbers of redis-bloom plan, and a rate that is kept", async () => {
    await open("docs/guide/calculator.html");
    await page.waitForSelector("#calculator-kind");
    for (const [kind, options] of KINDS) {
        for (const [items, rate, generations] of SIZES) {
            const wanted = ["plan", "--json", "--items", items, "--error", rate, ...options(generations)];
            const { filters } = JSON.parse(execFileSync(TOOL, wanted, { encoding: "utf8" }));
            const chosen = filters.find((filter) => filter.chosen);
            await page.selectOption("#calculator-kind", String(kind));
            await page.fill("#calculator-items", items);
            await page.fill("#calculator-rate", rate);
            if (kind > 3) await page.fill("#calculator-generations", generations);
            const shown = await page.evaluate(() => {
                const output = (name) => document.getElementById(`calculator-${name}`);
                const bytes = (name) => output(name).dataset.bytes;
                return {
                    bytes: bytes("bytes"), half: bytes("half"), double: bytes("double"),
                    bits: output("bits").textContent, rate: Number(output("full").dataset.rate),
                    lines: document.querySelectorAll("#calculator polyline").length,
                };
            });
            const what = wanted.join(" ");
            assert.strictEqual(shown.bytes, String(chosen.bytes), what);
            assert.strictEqual(shown.bits, chosen.bits_per_item.toFixed(2), what);
            if (kind < 4) {
                assert.strictEqual(shown.half, String(chosen.bytes_at_half), what);
                assert.strictEqual(shown.double, String(chosen.bytes_at_double ?? "refused"), what);
            }
            assert.ok(shown.rate > 0 && shown.rate <= chosen.error_rate, `${what}: ${shown.rate}`);
            assert.strictEqual(shown.lines, 1, what);
        }
    }
    await page.fill("#calculator-items", "0");
    assert.match(await page.textContent("#calculator-bytes"), /^Enter/);
    assert.deepStrictEqual(faults, []);
});
