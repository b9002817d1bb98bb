"""The report as one HTML file with charts: no script from elsewhere, no network, readable in ten years."""

from __future__ import annotations

import html
import math
from typing import Any

from loadtest.histogram import Histogram, decoded
from loadtest.report_keys import COUNTS, LATENCY_HELP, RATES
from loadtest.summary import micro

WIDTH, HEIGHT = 760, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 32
COLORS = ("var(--a)", "var(--b)", "var(--c)")

STYLE = """
:root{--bg:#fff;--ink:#1b2430;--dim:#64707f;--line:#dde3ea;--a:#2463eb;--b:#0f9d6b;--c:#d9730d;--bad:#c6262e;--shade:#c6262e22}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--ink:#e6ebf1;--dim:#93a0af;--line:#2a323d;--a:#6ea0ff;--b:#3ecf9a;--c:#f0a04b;--bad:#ff6b6b;--shade:#ff6b6b33}}
*{box-sizing:border-box}body{margin:0 auto;max-width:860px;padding:28px 24px 60px;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:24px;margin:0}h2{font-size:16px;margin:34px 0 8px}p.sub{color:var(--dim);margin:2px 0 18px;overflow-wrap:anywhere}
.tiles{display:flex;flex-wrap:wrap;gap:10px}.tile{flex:1 1 150px;border:1px solid var(--line);border-radius:8px;padding:10px 12px}
.tile b{display:block;font-size:21px;font-variant-numeric:tabular-nums}.tile span{color:var(--dim);font-size:13px}.bad b,.bad td{color:var(--bad)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}td,th{padding:4px 8px;border-bottom:1px solid var(--line);text-align:right}
td:first-child,th:first-child{text-align:left}th{color:var(--dim);font-weight:500}td{white-space:nowrap}td.help{white-space:normal;color:var(--dim);text-align:left}
svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font:11px system-ui,sans-serif}.grid{stroke:var(--line)}.fault{fill:var(--shade)}
.legend{display:flex;gap:16px;color:var(--dim);font-size:13px}.legend i{display:inline-block;width:12px;height:3px;margin-right:6px;vertical-align:middle}
footer{margin-top:40px;color:var(--dim);font-size:13px;overflow-wrap:anywhere}
"""  # noqa: E501


def page(data: dict[str, Any]) -> str:
    """The whole page of one run's JSON."""
    title = f"{data['scenario']} · {data['url']}"
    options = data["options"]
    seconds = "—" if data["duration_s"] is None else data["duration_s"]
    what = f"MQTT {data['mqtt']}, QoS {options['qos']}/{options['sub_qos']}, {data['started_at']}, measured {seconds} s"
    parts = [
        f"<h1>{_text(title)}</h1><p class=sub>{_text(what)} — {_verdict(data)}</p>",
        _tiles(data),
        _rate_chart(data),
        _latency_chart(data),
        _percentile_chart(data),
        _requirements(data),
        _latencies(data),
        _faults(data),
        _counts(data),
    ]
    footer = f"lmq load {_text(data['tool_version'])} · run {_text(data['run'])} · every option: {_text(_options(options))}"
    return (
        f'<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>{_text(title)}</title><style>{STYLE}</style><body>{''.join(parts)}<footer>{footer}</footer></body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _options(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items() if value not in (None, [], False))


def _verdict(data: dict[str, Any]) -> str:
    return {0: "all held", 1: "something did not hold", 130: "interrupted"}.get(data["exit"], f"exit {data['exit']}")


def _number(value: Any) -> str:
    return "—" if value is None else f"{value:,.0f}" if isinstance(value, (int, float)) else _text(value)


def _tiles(data: dict[str, Any]) -> str:
    tiles = []
    bound = "≥ " if data.get("harness", {}).get("saturated") else ""
    rates = (("acknowledged/s", "acked_per_s"), ("delivered/s", "delivered_per_s"), ("sent/s", "sent_per_s"), ("drained/s", "drain_per_s"))
    for label, name in rates:
        if data.get(name) is not None:
            tiles.append((f"{bound}{_number(data[name])}", label, False))
    for label, name in (("end to end p99", "e2e"), ("ack p99", "ack")):
        if data.get(name):
            tiles.append((micro(data[name]["p99"]), label, False))
    tiles.append((_number(data["lost"]), "lost", bool(data["lost"])))
    tiles.append((_number(data["duplicate"]), "duplicate", bool(data["duplicate"])))
    shown = "".join(f"<div class='tile{' bad' if bad else ''}'><b>{value}</b><span>{label}</span></div>" for value, label, bad in tiles[:7])
    return f"<div class=tiles>{shown}</div>"


def _nice(top: float) -> float:
    """The next round number at or above `top`."""
    if top <= 0:
        return 1.0
    step = 10 ** math.floor(math.log10(top))
    return float(next(step * factor for factor in (1, 2, 2.5, 5, 10) if step * factor >= top))


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _frame(top: float, label: Any, xs: list[tuple[float, str]]) -> str:
    out = []
    for step in range(5):
        y = TOP + (HEIGHT - TOP - BOTTOM) * step / 4
        out.append(f"<line class=grid x1={LEFT} x2={WIDTH - RIGHT} y1={y:.1f} y2={y:.1f} />")
        out.append(f"<text x={LEFT - 6} y={y + 4:.1f} text-anchor=end>{label(top * (4 - step) / 4)}</text>")
    out += [f"<text x={x:.1f} y={HEIGHT - 10} text-anchor=middle>{text}</text>" for x, text in xs]
    return "".join(out)


def _x(at: float, last: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * at / max(last, 1e-9)


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(value, top) / top)


def _line_chart(identifier: str, heading: str, rows: list[dict[str, Any]], series: list[tuple[str, str]], label: Any,
                faults: list[dict[str, Any]]) -> str:  # fmt: skip
    """Lines over the seconds of the run, with faults as shaded spans."""
    values = [row[name] for row in rows for _, name in series if row[name] is not None]
    if not values:
        return ""
    last = max(row["t_s"] for row in rows)
    top = _nice(max(values))
    ticks = sorted({round(last * part / 5) for part in range(6)})
    body = _frame(top, label, [(_x(tick, last), f"{tick} s") for tick in ticks])
    for fault in faults:
        if fault["at_s"] is not None:
            start, end = fault["at_s"], fault["at_s"] + (fault["recovered_s"] or fault["down_s"] or 0.2)
            x = _x(min(start, last), last)
            width = max(2.0, _x(min(end, last), last) - x)
            body += (
                f"<rect class=fault x={x:.1f} y={TOP} width={width:.1f} height={HEIGHT - TOP - BOTTOM}>"
                f"<title>{_text(fault['kind'])}: {_text(fault['detail'])}</title></rect>"
            )
    for place, (name, key) in enumerate(series):
        points = [(_x(row["t_s"], last), _y(row[key], top)) for row in rows if row[key] is not None]
        if len(points) == 1:
            body += f"<circle cx={points[0][0]:.1f} cy={points[0][1]:.1f} r=3 fill='{COLORS[place]}' />"
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        body += f"<polyline fill=none stroke='{COLORS[place]}' stroke-width=1.8 points='{path}'><title>{_text(name)}</title></polyline>"
    legend = "".join(f"<span><i style='background:{COLORS[place]}'></i>{_text(name)}</span>" for place, (name, _) in enumerate(series))
    return (
        f"<h2>{heading}</h2><div class=legend>{legend}</div>"
        f"<svg id={identifier} class=chart viewBox='0 0 {WIDTH} {HEIGHT}' role=img aria-label='{heading}'>{body}</svg>"
    )


def _rate_chart(data: dict[str, Any]) -> str:
    series = [(name, name) for name in ("sent", "acked", "delivered") if any(row[name] for row in data["timeline"])]
    return _line_chart("rates", "Messages per second", data["timeline"], series, _short, data["faults"]) if series else ""


def _latency_chart(data: dict[str, Any]) -> str:
    series = [("p50", "e2e_p50"), ("p99", "e2e_p99")]
    return _line_chart("latency", "End to end latency by second", data["timeline"], series, micro, data["faults"])


def _percentile_chart(data: dict[str, Any]) -> str:
    """Latency against the share of messages that are slower, both on logarithmic scales."""
    kept: list[tuple[str, Histogram]] = []
    for label, name in (("end to end", "e2e"), ("ack", "ack"), ("connect", "connect")):
        if name in data["histograms"]:
            kept.append((label, decoded(data["histograms"][name])))
    if not kept:
        return ""
    percents = [100 * (1 - 10 ** (-step / 10)) for step in range(41)]
    curves = [(label, [max(1.0, one.percentile(percent) / 1e3) for percent in percents]) for label, one in kept]
    low = 10 ** math.floor(math.log10(min(min(values) for _, values in curves)))
    high = 10 ** math.ceil(math.log10(max(max(values) for _, values in curves) * 1.001))
    decades = max(1, round(math.log10(high / low)))

    def height(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - math.log10(value / low) / decades)

    body = ""
    for step in range(decades + 1):
        y = height(low * 10**step)
        body += f"<line class=grid x1={LEFT} x2={WIDTH - RIGHT} y1={y:.1f} y2={y:.1f} />"
        body += f"<text x={LEFT - 6} y={y + 4:.1f} text-anchor=end>{micro(low * 10**step)}</text>"
    for place, name in enumerate(("0", "90 %", "99 %", "99.9 %", "99.99 %")):
        body += f"<text x={_x(place, 4):.1f} y={HEIGHT - 10} text-anchor={'end' if place == 4 else 'middle'}>{name}</text>"
    for place, (label, values) in enumerate(curves):
        path = " ".join(f"{_x(step / 10, 4):.1f},{height(value):.1f}" for step, value in enumerate(values))
        body += f"<polyline fill=none stroke='{COLORS[place]}' stroke-width=1.8 points='{path}'><title>{_text(label)}</title></polyline>"
    legend = "".join(f"<span><i style='background:{COLORS[place]}'></i>{label}</span>" for place, (label, _) in enumerate(curves))
    return (
        f"<h2>Latency by percentile</h2><div class=legend>{legend}</div>"
        f"<svg id=percentiles class=chart viewBox='0 0 {WIDTH} {HEIGHT}' role=img aria-label='Latency by percentile'>{body}</svg>"
    )


def _requirements(data: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr class='{'' if row['held'] else 'bad'}'><td>{_text(row['expr'])}</td><td>{_number(row['value'])}</td>"
        f"<td>{'held' if row['held'] else 'did not hold'}</td></tr>"
        for row in data["requirements"]
    )
    return f"<h2>Requirements</h2><table><tr><th>expression<th>figure<th></tr>{rows}</table>" if rows else ""


def _latencies(data: dict[str, Any]) -> str:
    columns = ("n", "min", "mean", "p50", "p90", "p99", "p999", "p9999", "max")
    rows = ""
    for name, what in LATENCY_HELP.items():
        figures = data.get(name)
        if figures:
            cells = "".join(f"<td>{_number(figures[key]) if key == 'n' else micro(figures[key])}</td>" for key in columns)
            rows += f"<tr><td title='{_text(what)}'>{name}</td>{cells}</tr>"
    head = "".join(f"<th>{column}" for column in columns)
    return f"<h2>Latencies</h2><table><tr><th>{head}</tr>{rows}</table>" if rows else ""


def _faults(data: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{_text(row['kind'])}</td><td>{_number(row['at_s']) if row['at_s'] is None else row['at_s']} s</td>"
        f"<td>{'—' if row['down_s'] is None else row['down_s']} s</td>"
        f"<td>{'—' if row['recovered_s'] is None else row['recovered_s']} s</td>"
        f"<td class=help>{_text(row['detail'])}</td></tr>"
        for row in data["faults"]
    )
    return f"<h2>Faults</h2><table><tr><th>kind<th>at<th>no answer for<th>all back after<th></tr>{rows}</table>" if rows else ""


def _counts(data: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{name}</td><td>{_number(data.get(name))}</td><td class=help>{_text(what)}</td></tr>"
        for name, what in {**COUNTS, **RATES}.items()
    )
    reasons = "".join(f"<tr><td>{_text(name)}</td><td>{times}</td><td></td></tr>" for name, times in data["reasons"].items())
    return f"<h2>Account</h2><table>{rows}{reasons}</table>"
