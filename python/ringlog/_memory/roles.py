"""Roles: who holds which, and who waits. Only what is left by its process has a timeout: the others are in this one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ringlog._memory import types
from ringlog._memory.values import Refusal, bad_value, duration_text, invalid, parse_duration, time_text
from ringlog.event import Json

if TYPE_CHECKING:
    from ringlog._memory.log import Log

DEFAULT_TTL, MIN_TTL, MAX_TTL = timedelta(seconds=15), timedelta(seconds=2), timedelta(hours=1)
MAX_ROLE_WAIT = timedelta(minutes=5)
MAX_QUEUE = 100  # claims that the view of a role lists
MAX_WAITING = 1000  # claims that may wait for one role
MAX_LEASES = 1000  # of a renewal


class Claim:
    """What a session has of a role: it holds it, or waits for it. ends is None while its process renews it."""

    def __init__(self, holder: str, session: str, ttl: timedelta, now: datetime) -> None:
        self.holder, self.session, self.ttl = holder, session, ttl
        self.since = self.renewed = now
        self.ends: datetime | None = None
        self.killed = False  # its process, of which a renewal may still be on its way

    def renew(self, now: datetime) -> None:
        """Have it last for as long as its process lives."""
        if not self.killed:
            self.renewed, self.ends = now, None

    def leave(self, now: datetime, killed: bool) -> None:
        """Have it end by itself, as nothing renews it from now on."""
        self.ends, self.killed = now + self.ttl, killed

    def is_over(self, now: datetime) -> bool:
        """Report whether it has ended by itself."""
        return self.ends is not None and self.ends <= now


class Role:
    """A role that is held."""

    def __init__(self, name: str, held: Claim) -> None:
        self.name, self.held, self.fence = name, held, 0
        self.waiting: list[Claim] = []  # in the order of their arrival

    def claim_of(self, session: str) -> Claim | None:
        """Return what a session has of the role."""
        return next((claim for claim in (self.held, *self.waiting) if claim.session == session), None)


class Roles:
    """The roles that are held, by name."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._all: dict[str, Role] = {}

    # Commands.

    def acquire(self, name: str, holder: str, session: str, ttl: timedelta | None, waits: bool) -> None:
        """Give a role to a session, put it into the queue, or renew the claim that it has."""
        self.check_name(name)
        for field, text in (("holder", holder), ("session", session)):
            types.check_name(field, text, self._limit)
        now = self._log.clock.now()
        claim = Claim(holder, session, ttl or DEFAULT_TTL, now)
        role = self._all.get(name)
        if role is None:
            if len(self._all) >= (most := self._log.settings.number("roles.max")):
                raise Refusal("overloaded", "role", f"{most} roles are held, which is the limit", "release some")
            role = self._all[name] = Role(name, claim)
            self._log.append([self._give(role, claim, "free", "", self._log.last + 1)])
            return
        old = role.claim_of(session)
        if old is not None and old is not role.held and not waits:
            role.waiting.remove(old)
        elif old is not None:
            old.holder, old.ttl = holder, claim.ttl
            old.renew(now)
        elif waits and len(role.waiting) >= MAX_WAITING:
            raise Refusal("overloaded", "role", f"{MAX_WAITING} callers wait for {name}", "retry later")
        elif waits:
            role.waiting.append(claim)

    def renew(self, leases: list[Json]) -> Json:
        """Renew leases: the schema RoleRenewed."""
        if not 1 <= len(leases) <= MAX_LEASES:
            raise invalid("leases", f"{len(leases)} leases", f"send 1 to {MAX_LEASES} in a call")
        for i, lease in enumerate(leases):
            try:
                self.check_name(lease.get("role", ""))
            except Refusal as e:
                raise e.under(f"leases[{i}]") from None
        lost = []
        for lease in leases:
            role = self._all.get(lease["role"])
            if role is None or role.fence != lease.get("fence", 0):
                lost.append({"role": lease["role"], "fence": lease.get("fence", 0)})
                continue
            role.held.renew(self._log.clock.now())
        return {"renewed": len(leases) - len(lost), "lost": lost}

    def release(self, name: str, session: str, fence: int) -> Json:
        """End the claim of a session, or revoke the lease with a fence, and return the role after that."""
        self.check_name(name)
        if bool(session) == bool(fence):
            raise invalid("session", "either a session or a fence is needed", "send one of them")
        role = self._all.get(name)
        claim = role.claim_of(session) if role is not None else None
        if fence:
            self.check_lease(name, fence)
            self._end(self._all[name], "revoked")
        elif role is not None and claim is not None:
            if claim is role.held:
                self._end(role, "released")
            else:
                role.waiting.remove(claim)
        return self.view(name) | {"released": bool(fence or claim)}

    def leave(self, name: str, session: str, killed: bool = False) -> None:
        """Take a claim for one that its process does not renew, until it does again."""
        role = self._all.get(name)
        if role is not None and (claim := role.claim_of(session)) is not None:
            claim.leave(self._log.clock.now(), killed)

    def expire(self) -> None:
        """End the claims that nothing has renewed for their ttl."""
        now = self._log.clock.now()
        for role in list(self._all.values()):
            role.waiting = [claim for claim in role.waiting if not claim.is_over(now)]
            if role.held.is_over(now):
                self._end(role, "expired")

    def _end(self, role: Role, cause: str) -> None:
        """Take a role from its holder and give it to the next in the queue, if there is one."""
        before, first = role.held, self._log.last + 1
        payload = {"role": role.name, "holder": before.holder, "fence": role.fence}
        if cause == "released":
            events = [self._log.own("ROLE_RELEASED", payload, key=role.name)]
        else:
            events = [self._log.own("ROLE_LOST", {**payload, "cause": cause}, key=role.name)]
        if role.waiting:
            events.append(self._give(role, role.waiting.pop(0), cause, before.holder, first + 1))
        else:
            del self._all[role.name]
        self._log.append(events)

    def _give(self, role: Role, claim: Claim, cause: str, previous: str, fence: int) -> tuple[Json, str]:
        """Make a claim the holder's, and return the event of it, whose offset is the fence."""
        role.held, role.fence, claim.since = claim, fence, self._log.clock.now()
        payload = {"role": role.name, "holder": claim.holder, "fence": fence, "previous": previous, "cause": cause}
        return self._log.own("ROLE_ACQUIRED", payload, key=role.name)

    # Checks and views.

    @property
    def _limit(self) -> int:
        return self._log.settings.number("limits.name_bytes")

    def check_name(self, name: str) -> None:
        """Refuse what cannot be the name of a role."""
        if not name:
            raise invalid("role", "role is missing", "send the name of a role")
        types.check_name("role", name, self._limit)

    def check_request(self, name: str, fence: int) -> None:
        """Refuse half a lease in a request. None at all has neither."""
        if bool(name) != bool(fence):
            raise invalid("fence", "a role without a fence, or a fence without a role", "send both, or neither")
        if name:
            self.check_name(name)

    def check_lease(self, name: str, fence: int) -> None:
        """Refuse a lease that is over. None at all has neither name nor fence."""
        role = self._all.get(name)
        if (not name and not fence) or (role is not None and role.fence == fence):
            return
        message = f"the lease of {name} with fence {fence} is over"
        remedy = "stop what the role allows; acquire it again to continue"
        raise Refusal("fenced", "fence", message, remedy, offset=role.fence if role is not None else 0)

    def answer(self, name: str, session: str) -> Json:
        """Return a role as a session sees it: the schema RoleAcquired."""
        role = self._all[name]
        place = next((i for i, claim in enumerate(role.waiting, 1) if claim.session == session), 0)
        return {
            "role": name,
            "acquired": self.is_held_by(name, session),
            "holder": role.held.holder,
            "fence": role.fence,
            "ttl": duration_text(role.held.ttl),
            "place": place,
            "waiting": len(role.waiting),
        }

    def is_held_by(self, name: str, session: str) -> bool:
        """Report whether a session holds a role."""
        return name in self._all and self._all[name].held.session == session

    def view(self, name: str) -> Json:
        """Return a role as all see it: the schema Role."""
        role = self._all.get(name)
        if role is None:
            return {"role": name, "waiting": 0}
        held, now = role.held, self._log.clock.now()
        view: Json = {
            "role": name,
            "holder": held.holder,
            "fence": role.fence,
            "ttl": duration_text(held.ttl),
            "since": time_text(held.since),
            "renewed_at": time_text(held.renewed),
            "expires_at": time_text(held.ends or now + held.ttl),
            "waiting": len(role.waiting),
        }
        queue = [
            {"holder": c.holder, "since": time_text(c.since), "expires_at": time_text(c.ends or now + c.ttl)}
            for c in role.waiting[:MAX_QUEUE]
        ]
        return view | ({"queue": queue} if queue else {})

    def page(self, after: str, limit: int) -> Json:
        """Return a page of roles by name: the schema RolePage."""
        names = sorted(name for name in self._all if name > after)
        views = [self.view(name) for name in names[:limit]]
        page: Json = {"roles": [{key: view[key] for key in view if key != "queue"} for view in views]}
        return page | ({"next": names[limit - 1]} if len(names) > limit else {})


def parse_ttl(text: str, most: timedelta = MAX_TTL) -> timedelta | None:
    """Return the ttl of a claim, None if it is not given."""
    return _parse("ttl", text, MIN_TTL, most, "15s") if text else None


def parse_wait(text: str) -> float:
    """Return for how many seconds a call may wait for a role, or an allocation."""
    return _parse("wait", text or "0s", timedelta(0), MAX_ROLE_WAIT, "30s").total_seconds()


def _parse(field: str, text: str, least: timedelta, most: timedelta, example: str) -> timedelta:
    want = f"a duration from {duration_text(least)} to {duration_text(most)}, such as {example}"
    try:
        given = parse_duration(text)
    except ValueError:
        raise bad_value(field, text, want) from None
    if not least <= given <= most:
        raise bad_value(field, text, want)
    return given
