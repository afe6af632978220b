#include "metrics/report_page.h"

namespace distbelief {

// Shows the values under the pointer, or at the place that the arrow keys choose. All text goes in as textContent, so
// nothing from the data is ever read as HTML.
std::string_view report_script() {
  return R"js(
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const whole = new Intl.NumberFormat("en");
  const shown = {
    percent: v => v.toFixed(2) + " %",
    count: v => whole.format(Math.round(v)),
    measure: v => v === 0 || (Math.abs(v) >= 0.001 && Math.abs(v) < 1000) ? v.toFixed(4) : v.toPrecision(4),
  };
  const make = (kind, parent, text) => {
    const element = document.createElement("div");
    element.className = kind;
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  const nearest = (sorted, x) => {
    let low = 0, high = sorted.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < x) low = middle; else high = middle;
    }
    return Math.abs(sorted[low] - x) <= Math.abs(sorted[high] - x) ? low : high;
  };

  document.querySelectorAll(".plot").forEach((plot, number) => {
    const chart = charts[number];
    const [xLow, xHigh] = chart.x, [yLow, yHigh] = chart.y;
    const left = x => 100 * (chart.log ? Math.log(x / xLow) / Math.log(xHigh / xLow) : (x - xLow) / (xHigh - xLow));
    const across = share => chart.log ? xLow * (xHigh / xLow) ** share : xLow + share * (xHigh - xLow);
    const place = {
      epochs: (x, step) => "epoch " + x.toFixed(2) + " · step " + whole.format(step),
      seconds: x => (x < 100 ? x.toFixed(1) : whole.format(Math.round(x))) + " s",
      samples: x => whole.format(x) + " samples",
    }[chart.kind];
    const top = y => 100 * (1 - (y - yLow) / (yHigh - yLow));
    const densest = chart.series.reduce((a, b) => b.x.length > a.x.length ? b : a);
    let parts = [], at = -1;

    const hide = () => { parts.forEach(part => part.remove()); parts = []; at = -1; };
    const show = index => {
      hide();
      at = index;
      const x = densest.x[index];
      const cursor = make("cursor", plot);
      cursor.style.left = left(x) + "%";
      const tip = make("tip", plot);
      make("at", tip, place(x, densest.step[index]));
      parts = [cursor, tip];
      let height = 0;
      for (const series of chart.series) {
        const i = nearest(series.x, x);
        const y = Math.min(100, Math.max(0, top(series.y[i])));
        height += y / chart.series.length;
        const mark = make("mark s" + series.color, plot);
        mark.style.left = left(series.x[i]) + "%";
        mark.style.top = y + "%";
        parts.push(mark);
        const row = make("row", tip);
        const key = document.createElement("span");
        key.className = "key s" + series.color;
        key.textContent = series.label;
        const value = document.createElement("b");
        value.textContent = shown[chart.unit](series.y[i]);
        row.append(key, value);
      }
      // Beside the cursor, on the side with room, never out of the plot's card, and away from the curves.
      tip.classList.toggle("low", height < 45);
      const room = plot.clientWidth, width = tip.offsetWidth, spot = left(x) / 100 * room;
      const wanted = spot + 14 + width <= room + 12 ? spot + 14 : spot - 14 - width;
      tip.style.left = Math.max(-40, wanted) + "px";
    };

    const follow = event => {
      const box = plot.getBoundingClientRect();
      show(nearest(densest.x, across((event.clientX - box.left) / box.width)));
    };
    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", event => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") hide();
      if (step === undefined) return;
      event.preventDefault();
      show(Math.min(densest.x.length - 1, Math.max(0, at + step)));
    });
  });
})();
)js";
}

}  // namespace distbelief
