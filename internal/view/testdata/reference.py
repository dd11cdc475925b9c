"""Folds events into the rows of views the slow way: every field from all events of its key, by its definition.

Reads events from standard input, one JSON object a line: offset, at (Unix nanoseconds), type, key, source, payload.
Writes one JSON object: for each view its rows and its firings. The views are written down here a second time, in
Python; nothing is shared with what is compared.
"""

import json
import sys

SECOND = 10**9
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
BUCKETS = 60


def since(points, now, window):
    """The points of a window, which is 60 buckets: that of now and the 59 before."""
    width = -(-window // BUCKETS)
    return [x for at, x in points if at // width > now // width - BUCKETS]


def last(points, now):
    return points[-1][1] if points else None


def count(window=None):
    return lambda points, now: len(since(points, now, window) if window else points)


def total(window=None):
    return lambda points, now: sum(since(points, now, window) if window else [x for _, x in points])


def least(window=None):
    return lambda points, now: min(since(points, now, window) if window else [x for _, x in points], default=None)


def greatest(window=None):
    return lambda points, now: max(since(points, now, window) if window else [x for _, x in points], default=None)


def mean(window=None):
    def show(points, now):
        values = since(points, now, window) if window else [x for _, x in points]
        return sum(values) / len(values) if values else None

    return show


def rate(window, per):
    def show(points, now):
        width = -(-window // BUCKETS)
        begin = (now // width - BUCKETS + 1) * width
        return sum(since(points, now, window)) / ((now - begin) / per)

    return show


def ewma(half_life):
    def show(points, now):
        if not points:
            return None
        weights = [2.0 ** (-(points[-1][0] - at) / half_life) for at, _ in points]
        return sum(w * x for w, (_, x) in zip(weights, points)) / sum(weights)

    return show


def slope(per, window=None, newest=100):
    def show(points, now):
        kept = points[-newest:]
        if window:
            kept = [(at, x) for at, x in kept if at > now - window]
        if len({at for at, _ in kept}) < 2:
            return None
        xs = [(at - kept[0][0]) / per for at, _ in kept]
        ys = [x for _, x in kept]
        mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
        return sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs)

    return show


def distinct(limit=100):
    def show(points, now):
        n = len({json.dumps(x, sort_keys=True) for _, x in points})
        return n if n <= limit else {"more_than": limit}

    return show


class Field:
    """of gives the value of an event, None if it has none; reset says whether it forgets what was before."""

    def __init__(self, show, of=lambda e: 1, where=lambda e: True, reset=lambda e: False):
        self.show, self.of, self.where, self.reset = show, of, where, reset


class Rule:
    """when and until take the row and give True, False or None, which changes nothing."""

    def __init__(self, name, when, emit, payload=None, until=None, hold=0, ended=None, at_end=None):
        self.name, self.when, self.emit, self.payload = name, when, emit, payload or (lambda row, e: {})
        self.until, self.hold, self.ended, self.at_end = until, hold, ended, at_end or (lambda row, e, began: {})

    def over(self, row):
        if self.until:
            return self.until(row)
        holds = self.when(row)
        return None if holds is None else not holds


def known(condition):
    """A condition that has no answer while a field that it needs has no value."""

    def met(row):
        try:
            return condition(row)
        except TypeError:
            return None

    return met


class Row(dict):
    """The fields of a key, each computed when it is first asked for."""

    def __init__(self, view, key):
        super().__init__(key=key, updated_at=view.last[key][0])
        self.view = view

    def __missing__(self, name):
        field = self.view.fields.get(name)
        if field:
            self[name] = field.show(self.view.points[self["key"]][name], self["updated_at"])
        else:
            self[name] = self.view.computed[name](self)
        return self[name]

    def shown(self):
        return {name: self[name] for name in [*self.view.fields, *self.view.computed]}


class View:
    def __init__(self, types, key, fields, computed=None, rules=(), where=lambda e: True):
        self.types, self.key, self.fields = types, key, fields
        self.computed, self.rules, self.where = computed or {}, rules, where
        self.points = {}  # of each key: of each field the times and values
        self.last = {}  # of each key the time and offset of its last event
        self.held = {}  # of each key and rule the time and offset with which it began
        self.firings = []


    def fold(self, e):
        if e["type"] not in self.types or not self.where(e):
            return
        key = self.key(e)
        at = max(e["at"], self.last.get(key, (0, 0))[0])
        self.last[key] = at, e["offset"]
        points = self.points.setdefault(key, {name: [] for name in self.fields})
        for name, f in self.fields.items():
            if f.reset(e):
                points[name].clear()
            if f.where(e) and f.of(e) is not None:
                points[name].append((at, f.of(e)))
        if self.rules:
            self.fire(key, at, e)

    def fire(self, key, at, e):
        row = Row(self, key)
        for rule in self.rules:
            began = self.held.get((key, rule.name))
            if began is None:
                if rule.when(row) and not (rule.until and rule.until(row)):
                    self.held[key, rule.name] = at, e["offset"]
                    self.publish(rule, False, rule.emit, key, e, row, rule.payload(row, e))
            elif at - began[0] >= rule.hold and rule.over(row):
                del self.held[key, rule.name]
                if rule.ended:
                    more = rule.at_end(row, e, began[0])
                    self.publish(rule, True, rule.ended, key, e, row, {**more, "began_offset": began[1]})

    def publish(self, rule, ended, emit, key, e, row, payload):
        evidence = {"rule": rule.name, "key": key, "offset": e["offset"], "fields": row.shown()}
        self.firings.append({"rule": rule.name, "ended": ended, "type": emit, "payload": {**evidence, **payload}})

    def rows(self):
        return {
            key: {
                "key": key, "offset": offset, "at": at, "fields": Row(self, key).shown(),
                "rules": {r.name: self.held.get((key, r.name), [0, 0])[1] for r in self.rules},
            }
            for key, (at, offset) in self.last.items()
        }


def config(e):
    return e["payload"].get("config_key", e["payload"].get("config", e["key"]))


def of(name):
    return lambda e: e["payload"].get(name)


def has(name):
    return lambda e: name in e["payload"]


def typed(name):
    return lambda e: e["type"] == name


def severity(drop):
    for name, least_drop in (("critical", 100), ("severe", 75), ("moderate", 50), ("minor", 30)):
        if drop >= least_drop:
            return name
    return "none"


def hours(row):
    return 0.0 if row["trained_at"] is None else (row["updated_at"] - row["trained_at"]) // SECOND / 3600


def urgency(row):
    return 0.0 if row["trains"] is True or row["games"] == 0 else row["games"] / 1000 + row["hours"] / 24


def velocity(row, e, began=None):
    return {"velocity": row["velocity"], "config": row["key"]}


def stalled(row, e):
    return {
        "config_key": row["key"], "current_elo": row["elo"], "plateau_type": "elo", "source": "elo_trend",
        "recommendation": "return to the best model" if row["elo"] < row["best"] - 25 else "explore more",
        "stall_count": row["evaluations"], "velocity": row["drift"],
    }


def metrics(row, e):
    return {
        "severity": row["severity"],
        "metrics": {
            "drop": row["drop"], "recent_elo": row["recent"], "baseline_elo": row["baseline"], "win_rate": row["win_rate"],
        },
    }


elo = of("elo_estimate")
rated = {"of": elo, "where": has("elo_estimate")}
played = {"of": of("game_count"), "where": has("game_count")}
selfplay, trained = typed("SELFPLAY_COMPLETE"), typed("TRAINING_COMPLETED")

VIEWS = {
    "elo_trend": View(
        {"EVALUATION_COMPLETED"}, config,
        {
            "elo": Field(last, elo),
            "best": Field(greatest(), elo),
            "evaluations": Field(count(3 * DAY)),
            "velocity": Field(slope(HOUR, DAY), elo),
            "drift": Field(slope(HOUR, 3 * DAY, 300), elo),
        },
        rules=[
            Rule("rising", known(lambda r: r["evaluations"] >= 10 and r["velocity"] > 2), "ELO_VELOCITY_CHANGED", velocity,
                 known(lambda r: r["velocity"] < 1), ended="ELO_VELOCITY_CHANGED", at_end=velocity),
            Rule("falling", known(lambda r: r["evaluations"] >= 10 and r["velocity"] < -2), "ELO_VELOCITY_CHANGED", velocity,
                 known(lambda r: r["velocity"] > -1), ended="ELO_VELOCITY_CHANGED", at_end=velocity),
            Rule("plateau", known(lambda r: r["evaluations"] >= 30 and abs(r["drift"]) < 0.2), "PLATEAU_DETECTED", stalled,
                 known(lambda r: abs(r["drift"]) > 0.4), hold=6 * HOUR),
        ],
    ),
    "regression": View(
        {"EVALUATION_COMPLETED"}, config,
        {
            "evaluations": Field(count()),
            "recent": Field(ewma(6 * HOUR), elo),
            "baseline": Field(ewma(3 * DAY), elo),
            "win_rate": Field(mean(DAY), of("win_rate"), has("win_rate")),
        },
        {"drop": lambda r: r["baseline"] - r["recent"], "severity": lambda r: severity(r["drop"])},
        [
            Rule("detected", lambda r: r["evaluations"] >= 10 and r["drop"] >= 30, "REGRESSION_DETECTED", metrics,
                 lambda r: r["drop"] < 10, HOUR, "REGRESSION_CLEARED",
                 lambda r, e, began: {"recovery_time": (r["updated_at"] - began) / SECOND}),
            Rule("critical", lambda r: r["evaluations"] >= 10 and r["drop"] >= 100, "REGRESSION_CRITICAL",
                 lambda r, e: {"delta": -r["drop"], "action": "roll back"}, lambda r: r["drop"] < 50, HOUR),
        ],
    ),
    "training_urgency": View(
        {"NEW_GAMES_AVAILABLE", "TRAINING_STARTED", "TRAINING_COMPLETED"},
        lambda e: e["payload"].get("config_key", e["key"]),
        {
            "games": Field(total(), lambda e: e["payload"].get("new_games", e["payload"].get("count")),
                           typed("NEW_GAMES_AVAILABLE"), trained),
            "trained_at": Field(last, lambda e: e["at"], trained),
            "loss": Field(last, of("final_loss"), lambda e: trained(e) and "final_loss" in e["payload"]),
            "trains": Field(last, typed("TRAINING_STARTED"), lambda e: e["type"] != "NEW_GAMES_AVAILABLE"),
        },
        {"hours": hours, "urgency": urgency},
    ),
    "throughput": View(
        {"SELFPLAY_COMPLETE", "TRAINING_COMPLETED"}, lambda e: config(e) or "all",
        {
            "games": Field(total(), of("game_count"), selfplay),
            "games_per_hour": Field(rate(6 * HOUR, HOUR), of("game_count"), selfplay),
            "seconds_per_game": Field(mean(6 * HOUR), lambda e: e["payload"]["duration"] / e["payload"]["game_count"],
                                      lambda e: selfplay(e) and "duration" in e["payload"]),
            "producers": Field(distinct(), lambda e: e["source"], selfplay),
            "trainings": Field(count(), where=trained),
            "trainings_per_day": Field(rate(7 * DAY, DAY), where=trained),
        },
    ),
    "everything": View(
        {"EVALUATION_COMPLETED", "SELFPLAY_COMPLETE"}, of("config_key"),
        {
            "last": Field(last, lambda e: e["payload"]),
            "count": Field(count()),
            "count_hour": Field(count(HOUR)),
            "sum": Field(total(), **played),
            "sum_day": Field(total(DAY), **played),
            "min": Field(least(), **rated),
            "min_day": Field(least(DAY), **rated),
            "max": Field(greatest(), **rated),
            "max_day": Field(greatest(DAY), **rated),
            "mean": Field(mean(), **rated),
            "mean_day": Field(mean(DAY), **rated),
            "rate": Field(rate(100 * SECOND, MINUTE)),
            "rate_games": Field(rate(2 * HOUR, SECOND), **played),
            "ewma": Field(ewma(90 * MINUTE), **rated),
            "slope": Field(slope(DAY, newest=7), **rated),
            "slope_day": Field(slope(HOUR, 12 * HOUR), **rated),
            "sources": Field(distinct(40), lambda e: e["source"]),
            "counts": Field(distinct(20), **played),
        },
        {
            "spread": known(lambda r: r["max_day"] - r["min_day"]),
            "relative": known(lambda r: r["spread"] / r["mean"]),
        },
        [
            Rule("spread", known(lambda r: r["spread"] > 60), "MY_SPREAD", lambda r, e: {"by": e["source"]},
                 ended="MY_SPREAD_OVER",
                 at_end=lambda r, e, began: {"seconds": (r["updated_at"] - began) / SECOND, "relative": r["relative"]}),
            Rule("busy", lambda r: r["rate"] > 1.1, "MY_RUSH", None, lambda r: r["rate"] < 0.7, 5 * MINUTE, "MY_LULL"),
        ],
        lambda e: not e["payload"].get("test"),
    ),
}


def main():
    for line in sys.stdin:
        e = json.loads(line)
        for view in VIEWS.values():
            view.fold(e)
    json.dump({name: {"rows": v.rows(), "firings": v.firings} for name, v in VIEWS.items()}, sys.stdout)


main()
