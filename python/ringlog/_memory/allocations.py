"""Resources, and the allocations of them. As with roles, only what is left by its process has a timeout."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ringlog._memory import types
from ringlog._memory.roles import DEFAULT_TTL, MAX_LEASES, Claim
from ringlog._memory.values import Refusal, bad_value, duration_text, invalid, time_text, whole
from ringlog.event import Json

if TYPE_CHECKING:
    from ringlog._memory.log import Log

MAX_CAPACITY = 1 << 53
MAX_UNIT = 64  # bytes
MAX_AMOUNTS = 16  # of a request
MAX_TTL = timedelta(days=1)
CLASSES = ("LOW", "NORMAL", "HIGH", "CRITICAL")


class Resource:
    """A resource with its capacity."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.capacity, self.unit, self.preemptible = 0, "", False
        self.granted: list[Allocation] = []
        self.waiting: list[Allocation] = []

    @property
    def used(self) -> int:
        """How much is granted."""
        return sum(x.amounts[self.name] for x in self.granted)

    def first(self) -> Allocation | None:
        """Return the first in the queue: by class, the highest first, then by arrival."""
        return min(self.waiting, key=lambda x: (-x.rank, x.arrival), default=None)

    def lacks(self, amount: int) -> int:
        """Return how much more would have to be free for an amount to be granted."""
        return max(0, self.used + amount - self.capacity)

    def view(self) -> Json:
        """Return it as callers see it: the schema Resource."""
        return {
            "resource": self.name,
            "capacity": self.capacity,
            **({"unit": self.unit} if self.unit else {}),
            "preemptible": self.preemptible,
            "granted": self.used,
            "allocations": len(self.granted),
            "waiting": len(self.waiting),
        }


class Allocation:
    """An allocation that is granted, or a request that waits. Its rank is the class to which it has risen."""

    def __init__(self, claim: Claim, amounts: dict[str, int], priority: str, arrival: int) -> None:
        self.claim, self.amounts, self.priority, self.arrival = claim, amounts, priority, arrival
        self.id, self.rank, self.fence = claim.session, CLASSES.index(priority), 0
        self.rises: datetime | None = None  # when it rises next

    def view(self, now: datetime) -> Json:
        """Return it as callers see it: the schema Allocation."""
        claim = self.claim
        return {
            "allocation": self.id,
            "holder": claim.holder,
            "amounts": self.amounts,
            "priority": self.priority,
            "risen_to": CLASSES[self.rank],
            "granted": self.fence > 0,
            **({"fence": self.fence} if self.fence else {}),
            "ttl": duration_text(claim.ttl),
            "since": time_text(claim.since),
            "renewed_at": time_text(claim.renewed),
            "expires_at": time_text(claim.ends or now + claim.ttl),
        }


class Allocations:
    """The resources by name, and what is granted or waits by id. A request gets all of its amounts or none."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._resources: dict[str, Resource] = {}
        self._all: dict[str, Allocation] = {}
        self._arrivals = 0
        self._unsettled: set[str] = set()  # resources in whose queue the first may have to be granted

    # Resources.

    def set_resource(self, name: str, capacity: int, unit: str, preemptible: bool) -> Json:
        """Declare a resource, or change it."""
        self._check_name("resource", name)
        types.check_name("unit", unit, self._limit)
        if capacity > MAX_CAPACITY:
            raise invalid("capacity", f"a capacity of {capacity}", f"send at most {MAX_CAPACITY}")
        if len(unit.encode()) > MAX_UNIT:
            raise invalid("unit", f"a unit of {len(unit.encode())} bytes", f"send at most {MAX_UNIT}")
        if name not in self._resources:
            if len(self._resources) >= (most := self._log.settings.number("allocations.resources_max")):
                raise Refusal("overloaded", "resource", f"{most} resources are declared, which is the limit")
            self._resources[name] = Resource(name)
        one = self._resources[name]
        one.capacity, one.unit, one.preemptible = capacity, unit, preemptible
        # What wants more than that is dropped where it is the first in the queue of another resource, too.
        self._unsettled |= {name, *(other for x in one.waiting for other in x.amounts)}
        self._settle()
        return one.view()

    def remove_resource(self, name: str) -> Json:
        """Remove a resource of which nobody has or wants anything."""
        one = self._resource(name, "resource")
        if one.granted or one.waiting:
            raise Refusal("conflict", "resource", f"{name} is in use", "release it first", reason="resource_in_use")
        self._unsettled.discard(name)
        return self._resources.pop(name).view()

    def get_resource(self, name: str) -> Json:
        """Return a resource."""
        return self._resource(name, "resource").view()

    def _resource(self, name: str, field: str) -> Resource:
        if name not in self._resources:
            message = f"there is no resource {name!r}"
            raise Refusal("not_found", field, message, "declare it: Client.set_resource", reason="unknown_resource")
        return self._resources[name]

    def resource_page(self, after: str, limit: int) -> Json:
        """Return a page of resources by name: the schema ResourcePage."""
        names = sorted(name for name in self._resources if name > after)
        page: Json = {"resources": [self._resources[name].view() for name in names[:limit]]}
        return page | ({"next": names[limit - 1]} if len(names) > limit else {})

    # Requests.

    def request(
        self, id_: str, holder: str, amounts: dict[str, int], priority: str, ttl: timedelta | None, waits: bool
    ) -> None:
        """Grant amounts, put the request into its queues, or renew what the caller has."""
        self._check_name("allocation", id_)
        self._check_name("holder", holder)
        if not 1 <= len(amounts) <= MAX_AMOUNTS:
            raise invalid("amounts", f"{len(amounts)} amounts", f"send 1 to {MAX_AMOUNTS}")
        for name in sorted(amounts):
            self._check_name("amounts", name)
        if not all(amounts.values()):
            raise invalid("amounts", "an amount of 0", "send amounts above 0")
        now, known = self._log.clock.now(), self._all.get(id_)
        if known is not None and (known.amounts, known.priority) != (amounts, priority):
            message = f"{id_} is an allocation with other amounts, or another priority"
            raise Refusal("conflict", "id", message, "use a new random id for each request", reason="other_request")
        if known is None or not known.fence:
            self._check_capacity(amounts)
        if known is not None and not known.fence and not waits:
            self._drop(known)
        elif known is not None:
            known.claim.holder, known.claim.ttl = holder, ttl or DEFAULT_TTL
            known.claim.renew(now)
        elif len(self._all) >= (most := self._log.settings.number("allocations.max")):
            raise Refusal("overloaded", "id", f"{most} allocations are granted or wait, which is the limit")
        else:
            self._arrivals += 1
            x = Allocation(Claim(holder, id_, ttl or DEFAULT_TTL, now), amounts, priority, self._arrivals)
            self._all[id_] = x
            for name in amounts:
                self._resources[name].waiting.append(x)
            self._plan_rise(x)
            self._advance(x)
            if not x.fence and not waits:
                self._drop(x)
        self._settle()

    def _check_capacity(self, amounts: dict[str, int]) -> None:
        for name, amount in sorted(amounts.items()):
            if amount > (most := self._resource(name, "amounts").capacity):
                message = f"{amount} of {name}, which has a capacity of {most}"
                raise Refusal("conflict", "amounts", message, "ask for less", reason="over_capacity")

    def fits(self, amounts: dict[str, int]) -> bool:
        """Report whether the capacities are enough for a request."""
        return all(name in self._resources and n <= self._resources[name].capacity for name, n in amounts.items())

    def renew(self, leases: list[Json]) -> Json:
        """Renew allocations: the schema AllocationRenewed."""
        if not 1 <= len(leases) <= MAX_LEASES:
            raise invalid("leases", f"{len(leases)} leases", f"send 1 to {MAX_LEASES} in a call")
        for i, lease in enumerate(leases):
            try:
                self._check_name("allocation", lease.get("allocation", ""))
            except Refusal as e:
                raise e.under(f"leases[{i}]") from None
        lost = []
        for lease in leases:
            x, fence = self._all.get(lease["allocation"]), lease.get("fence", 0)
            if x is None or not fence or x.fence != fence:
                lost.append({"allocation": lease["allocation"], "fence": fence})
                continue
            x.claim.renew(self._log.clock.now())
        return {"renewed": len(leases) - len(lost), "lost": lost}

    def release(self, id_: str) -> Json:
        """End an allocation, or what waits for one."""
        self._check_name("allocation", id_)
        x = self._all.get(id_)
        if x is not None and x.fence:
            self._end(x, "ALLOCATION_RELEASED")
        elif x is not None:
            self._drop(x)
        self._settle()
        return self.answer(id_)

    def leave(self, id_: str, killed: bool = False) -> None:
        """Take a claim for one that its process does not renew, until it does again."""
        if id_ in self._all:
            self._all[id_].claim.leave(self._log.clock.now(), killed)

    def expire(self) -> None:
        """End what nothing has renewed for its ttl, and have what waits rise."""
        now = self._log.clock.now()
        over = [(x.claim.ends, x.id, x) for x in self._all.values() if x.claim.is_over(now)]
        for _, _, x in sorted(over):
            if x.fence:
                self._end(x, "ALLOCATION_LOST", cause="expired")
            else:
                self._drop(x)
        for x in self._all.values():
            if x.rises is not None and x.rises <= now and not x.fence:
                x.rank += 1
                self._plan_rise(x)
                self._unsettled |= x.amounts.keys()
        self._settle()

    def _plan_rise(self, x: Allocation) -> None:
        after, last = self._log.settings.duration("allocations.rise_after"), x.rank == len(CLASSES) - 1
        x.rises = self._log.clock.now() + after if after and not last else None

    # Grants. A request is granted once it is the first in all of its queues and all of its amounts are free.

    def _settle(self) -> None:
        """Look at the queues whose first may have to be granted, by the names of their resources."""
        while self._unsettled:
            name = min(self._unsettled)
            first = self._resources[name].first()
            if first is None or not self._advance(first):
                self._unsettled.discard(name)

    def _advance(self, x: Allocation) -> bool:
        """Grant a request if it is its turn, or drop it if nobody will ever grant it; False if it waits on."""
        wanted = [(self._resources[name], amount) for name, amount in sorted(x.amounts.items())]
        if any(amount > of.capacity for of, amount in wanted):
            self._drop(x)
            return True
        if any(of.first() is not x for of, _ in wanted):
            return False
        if any(of.lacks(amount) for of, amount in wanted):
            victims = self._victims(x, wanted)
            if not victims:
                return False
            for victim, of in victims:
                self._preempt(victim, of, x)
        x.fence, x.rises, now = self._log.last + 1, None, self._log.clock.now()
        for of, _ in wanted:
            of.waiting.remove(x)
            of.granted.append(x)
            self._unsettled.add(of.name)
        waited, x.claim.since = now - x.claim.since, now
        self._report(x, "ALLOCATION_GRANTED", risen_to=CLASSES[x.rank], waited_ms=waited // timedelta(milliseconds=1))
        return True

    def _victims(self, x: Allocation, wanted: list[tuple[Resource, int]]) -> list[tuple[Allocation, Resource]]:
        """Return the allocations that a request ends, each with a resource of which it lacks an amount."""
        if x.priority != "CRITICAL":
            return []
        chosen: dict[str, tuple[Allocation, Resource]] = {}
        for of, amount in wanted:
            lows = sorted((low for low in of.granted if not low.rank), key=lambda low: -low.arrival)
            lacks = of.lacks(amount)
            if lacks and (not of.preemptible or lacks > sum(low.amounts[of.name] for low in lows)):
                return []
            lacks -= sum(low.amounts.get(of.name, 0) for low, _ in chosen.values())
            for low in lows:
                if lacks > 0 and low.id not in chosen:
                    chosen[low.id] = low, of
                    lacks -= low.amounts[of.name]
        return list(chosen.values())

    def _preempt(self, x: Allocation, of: Resource, by: Allocation) -> None:
        """End an allocation for a CRITICAL request."""
        evidence = {"resource": of.name, "capacity": of.capacity, "granted": of.used, "wanted": by.amounts[of.name]}
        self._end(x, "JOB_PREEMPTED", **evidence, by=by.id, by_holder=by.claim.holder)

    def _end(self, x: Allocation, type_: str, **payload: object) -> None:
        """Take the amounts of an allocation from its holder."""
        held = self._log.clock.now() - x.claim.since
        self._report(x, type_, held_ms=held // timedelta(milliseconds=1), **payload)
        del self._all[x.id]
        for name in x.amounts:
            self._resources[name].granted.remove(x)
            self._unsettled.add(name)

    def _drop(self, x: Allocation) -> None:
        """Remove a request that waits. Those after it may have become the first."""
        del self._all[x.id]
        for name in x.amounts:
            self._resources[name].waiting.remove(x)
            self._unsettled.add(name)

    def _report(self, x: Allocation, type_: str, **payload: object) -> None:
        about = {"allocation": x.id, "holder": x.claim.holder, "fence": x.fence, "amounts": x.amounts}
        self._log.append([self._log.own(type_, {**about, "priority": x.priority, **payload}, key=x.id)])

    # Checks and views.

    @property
    def _limit(self) -> int:
        return self._log.settings.number("limits.name_bytes")

    def _check_name(self, field: str, name: str) -> None:
        if not name:
            raise invalid(field, f"{field} is missing", "send a name")
        types.check_name(field, name, self._limit)

    def answer(self, id_: str) -> Json:
        """Return an allocation as its caller sees it: the schema AllocationAnswer."""
        x = self._all.get(id_)
        if x is None:
            return {"allocation": id_, "granted": False, "waiting": False}
        fence = {"fence": x.fence} if x.fence else {}
        ttl = duration_text(x.claim.ttl)
        return {"allocation": id_, "granted": bool(fence), "waiting": not fence, **fence, "ttl": ttl}

    def waits(self, id_: str) -> bool:
        """Report whether a request waits."""
        return id_ in self._all and not self._all[id_].fence

    def get(self, id_: str) -> Json:
        """Return an allocation, or a request that waits."""
        if id_ not in self._all:
            raise Refusal("not_found", "allocation", f"there is no allocation {id_!r}", "list them: Client.allocations")
        return self._all[id_].view(self._log.clock.now())

    def page(self, after: str, limit: int) -> Json:
        """Return a page of what is granted or waits, by id: the schema AllocationPage."""
        ids, now = sorted(id_ for id_ in self._all if id_ > after), self._log.clock.now()
        page: Json = {"allocations": [self._all[id_].view(now) for id_ in ids[:limit]]}
        return page | ({"next": ids[limit - 1]} if len(ids) > limit else {})


def parse_amounts(given: object) -> dict[str, int]:
    """Return the amounts of a request."""
    if given is None:
        return {}
    want = 'an object such as {"net:gpu-1": 50}'
    if not isinstance(given, dict):
        raise bad_value("amounts", given, want)
    amounts: dict[str, int] = {}
    for name, amount in given.items():
        number = whole(amount)
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise bad_value("amounts", given, want)
        amounts[name] = number
    return amounts


def parse_priority(text: str) -> str:
    """Return the priority of a request, NORMAL if it is not given."""
    if (priority := text.upper() or "NORMAL") not in CLASSES:
        raise bad_value("priority", text, "LOW, NORMAL, HIGH or CRITICAL")
    return priority
