"""Authenticator: tell who sends a request, and through which profile they may look. One for everything over HTTP."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from pegboard.auth.keyring import GRANTS_REMEMBERED
from pegboard.auth.rejections import BadCredentialError, InsufficientScopeError, UnavailableError
from pegboard.auth.rule_matching import ANONYMOUS_PROOF
from pegboard.auth.rules import AnonymousRule, Grant, IdentityRules, Still
from pegboard.catalog import Catalog
from pegboard.core.bounded_cache import BoundedCache
from pegboard.lazy import LazyModule
from pegboard.model.bounds import KIB
from pegboard.model.profile import Profile
from pegboard.server.challenges import Challenges
from pegboard.server.host_guard import LOOPBACK_HOSTS, HostGuard, Refusal
from pegboard.server.identify import Identified, Identify, identified
from pegboard.server.principal import (
    ANONYMOUS,
    CALLERS_REMEMBERED,
    DEFAULT_PROFILE,
    Identity,
    Principal,
    choose_profile,
)

if TYPE_CHECKING:
    from pegboard.auth import verifier
    from pegboard.auth.verifier import Verifier
else:
    verifier = LazyModule("pegboard.auth.verifier")

CREDENTIAL_CHARS = 16 * KIB  # of a bearer credential
IPV6_NETWORK_BITS = 64  # of an address: who has one has all of its network, and is one caller

log = logging.getLogger("pegboard.serve")
NOT_FOUND = Refusal(status=404, text="Not found")
_NOT_NOW = Refusal(
    status=503,
    text="Credentials cannot be checked at the moment. Try again in a moment.",
    headers=((b"retry-after", b"5"),),
)
_NOT_HERE = Refusal(status=403, text="This credential may do nothing here. Ask the operator for a rule that names it.")
_FORWARDED = (b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"true-client-ip", b"cf-connecting-ip")
_X_FORWARDED = b"x-forwarded"
_NAME_BYTES = 32

Scope = MutableMapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Authenticated:
    """Who was let in, with the profiles that they may look through; `None` means every profile there is."""

    identity: Identity
    profiles: tuple[str, ...] | None = None
    through: dict[str | None, Principal] = field(default_factory=dict[str | None, Principal], repr=False, compare=False)
    """Who asks through each profile, and where a request names none, as one value for all requests."""


class _Admitted(NamedTuple):
    """Who was let in with a grant, and when no profile was missing: as long as these are declared."""

    grant: Grant
    profiles: Mapping[str, Profile]
    caller: Authenticated


class _LetIn(NamedTuple):
    """Who was let in with a credential: as long as that is good still, and these profiles are declared."""

    still: Still
    profiles: Mapping[str, Profile]
    caller: Authenticated


_ANYBODY = Authenticated(identity=Identity())


class Authenticator:
    """Judges the credential of every request, by the identity rules that the catalog has at that moment.

    A catalog without such rules lets everybody in. With them, a credential that is shown must be good, whoever may come
    without one; and what cannot be judged is not let in.

    Args:
        catalog: whose identity rules count.
        profile: the profile behind an address that names none; by default `default`, or the first.
        identify: the host's own word on who sends a request; then no identity rules count.
    """

    def __init__(self, catalog: Catalog, *, profile: str | None = None, identify: Identify | None = None) -> None:
        self._registry, self._profile, self._identify = catalog.registry, profile, identify
        self._principals = BoundedCache[tuple[str | None, str], Principal](max_entries=CALLERS_REMEMBERED)
        self._admitted = BoundedCache[int, _Admitted](max_entries=GRANTS_REMEMBERED)
        self._rules: IdentityRules | None = None
        self._local = HostGuard(LOOPBACK_HOSTS)

    async def identify(self, scope: Scope) -> Authenticated | Refusal:
        """Tell who sends a request, by its ASGI scope, and take the credential out of that."""
        if self._identify is not None:
            caller = await identified(self._identify, scope)
            return caller if isinstance(caller, Refusal) else self._known_to_host(caller)
        rules = self._registry.declarations.identity
        if rules is None:
            return _ANYBODY
        if rules is not self._rules:
            self._adopt(rules)
        headers = scope["headers"]
        shown = [value for name, value in headers if name == b"authorization"]
        if not shown:
            return self._anonymous(scope, rules.anonymous)
        # Nothing behind this point ever sees a credential, so nothing can pass it on or write it down.
        scope["headers"] = [header for header in headers if header[0] != b"authorization"]
        return await self._verified(shown, scope)

    def at_hand(self, scope: Scope, named: str | None = None) -> Principal | None:
        """Return who sends a request, where the very same was let in before and would be now, without waiting.

        `None` leaves the request to `authenticate`. Unlike that, this leaves the credential in the request.
        """
        rules = self._registry.declarations.identity
        if rules is None or rules is not self._rules or self._identify is not None:
            return None
        shown = [value for name, value in scope["headers"] if name == b"authorization"]
        known = self._let_in.get(_name_of(shown[0])) if len(shown) == 1 else None
        if known is None or known.profiles is not self._registry.profiles or not known.still():
            return None
        return known.caller.through.get(named)

    async def authenticate(self, scope: Scope, named: str | None = None) -> Principal | Refusal:
        """Return who sends a request, and through which profile: the one that it names, or the one without naming any.

        A profile that the caller does not have is not found, like one that does not exist.
        """
        declared = self._registry.declarations
        if declared.identity is None and self._identify is None:
            return self._anonymous_principal(named, declared.profiles, _host_of(scope))
        caller = await self.identify(scope)
        if isinstance(caller, Refusal):
            return caller
        profile = self._allowed(caller, named)
        if isinstance(profile, Refusal):
            return profile
        principal = self._principal(caller, profile, scope)
        if principal.identity.credential != ANONYMOUS:
            caller.through[named] = principal
        return principal

    def _principal(self, caller: Authenticated, profile: str | None, scope: Scope) -> Principal:
        who = caller.identity
        if who.credential == ANONYMOUS:
            return Principal(identity=who, profile=profile, session=who.credential, address=network_of(_host_of(scope)))
        principal = caller.through.get(profile)
        if principal is None:
            principal = caller.through[profile] = Principal(identity=who, profile=profile, session=who.credential)
        return principal

    # -- who

    def _adopt(self, rules: IdentityRules) -> None:
        self._verifier: Verifier = verifier.Verifier(rules)
        self._challenges = Challenges(rules.tokens)
        self._let_in = BoundedCache[bytes, _LetIn](max_entries=GRANTS_REMEMBERED)
        self._rules = rules

    def _anonymous(self, scope: Scope, rule: AnonymousRule | None) -> Authenticated | Refusal:
        if rule is None or not (rule.is_anywhere or self.is_local(scope)):
            return self._challenges.missing(scope)
        return Authenticated(identity=Identity(proof=ANONYMOUS_PROOF), profiles=rule.profiles or None)

    def is_local(self, scope: Scope) -> bool:
        """Tell whether a request comes from this machine, and not through a proxy that runs on it."""
        client = scope.get("client")
        try:
            is_near = client is not None and ipaddress.ip_address(client[0]).is_loopback
        except ValueError:
            is_near = False
        if not is_near or any(_tells_of_a_proxy(name) for name, _ in scope["headers"]):
            return False
        return self._local.refusal(scope["headers"]) is None

    async def _verified(self, shown: list[bytes], scope: Scope) -> Authenticated | Refusal:
        credential = _bearer(shown)
        if credential is None:
            return self._challenges.invalid(scope)
        judge = self._verifier
        try:
            grant = await judge.grant(credential)
        except InsufficientScopeError:
            return self._challenges.insufficient(scope)
        except BadCredentialError as error:
            log.info("credential_refused: %s", error.reason)
            return self._challenges.invalid(scope)
        except UnavailableError:
            return _NOT_NOW
        if grant is None:
            return _NOT_HERE
        caller = self._granted(grant)
        # By other rules, which may have come meanwhile, the same credential is somebody else's.
        if isinstance(caller, Authenticated) and judge is self._verifier:
            still = judge.still(credential)
            if still is not None:
                self._let_in.remember(_name_of(shown[0]), _LetIn(still, self._registry.profiles, caller))
        return caller

    def _granted(self, grant: Grant) -> Authenticated | Refusal:
        known, profiles = self._admitted.get(id(grant)), self._registry.profiles
        if known is not None and known.grant is grant and known.profiles is profiles:
            return known.caller
        if not self._are_declared(grant.profiles):
            log.warning("credential_refused: a rule gives a profile that does not exist, or none")
            return _NOT_HERE
        who = Identity(
            credential=grant.owner,
            user=grant.user,
            space=grant.space,
            roles=grant.roles,
            proof=grant.proof,
            key_id=grant.key_id,
            ends_at=grant.ends_at,
        )
        caller = Authenticated(identity=who, profiles=grant.profiles or None)
        return self._admitted.remember(id(grant), _Admitted(grant, profiles, caller)).caller

    def _known_to_host(self, caller: Identified) -> Authenticated | Refusal:
        if not self._are_declared(caller.profiles):
            log.warning("identify gave %r the profiles %s: one does not exist, or none", caller.user, caller.profiles)
            return _NOT_HERE
        who = Identity(credential=caller.owner, user=caller.user, space=caller.space, roles=caller.roles)
        return Authenticated(identity=who, profiles=caller.profiles or None)

    def _are_declared(self, profiles: tuple[str, ...]) -> bool:
        """Tell whether these can be looked through: all of them exist, and where there are any, one is named."""
        declared = self._registry.profiles
        return declared.keys() >= set(profiles) and bool(profiles or not declared)

    # -- through which profile

    def profiles_of(self, caller: Authenticated) -> tuple[str, ...]:
        """Return the profiles that a caller may name."""
        declared = self._registry.declarations
        if declared.identity is None and self._identify is None:
            return tuple(declared.profiles)
        return tuple(name for name in caller.profiles or () if name in declared.profiles)

    def _allowed(self, caller: Authenticated, named: str | None) -> str | Refusal | None:
        profiles = self._registry.profiles
        if caller.profiles is None:
            # Only a catalog without profiles shows all it has.
            return NOT_FOUND if named is not None or profiles else None
        if named is not None:
            return named if named in caller.profiles and named in profiles else NOT_FOUND
        for wanted in (self._profile, DEFAULT_PROFILE, *caller.profiles):
            if wanted in caller.profiles and wanted in profiles:
                return wanted
        return NOT_FOUND

    def _anonymous_principal(
        self, named: str | None, profiles: Mapping[str, Profile], host: str
    ) -> Principal | Refusal:
        """Return the principal of everybody, on a server that asks nobody who they are."""
        profile = named or choose_profile(profiles, None if self._profile not in profiles else self._profile)
        if named is not None and named not in profiles:
            return NOT_FOUND
        principal = self._principals.get((profile, host))
        if principal is None:
            who = _ANYBODY.identity
            address = network_of(host)
            principal = Principal(identity=who, profile=profile, session=who.credential, address=address)
            self._principals.remember((profile, host), principal)
        return principal


def _name_of(shown: bytes) -> bytes:
    """Return by what a credential is known that was let in: itself is not kept."""
    return blake2b(shown, digest_size=_NAME_BYTES).digest()


def _bearer(shown: list[bytes]) -> str | None:
    """Return the credential of the one header that shows one; `None` for whatever else was sent."""
    if len(shown) != 1:
        return None
    scheme, _, credential = shown[0].strip(b" \t").partition(b" ")
    credential = credential.strip(b" ")
    is_plain = credential.isascii() and 0 < len(credential) <= CREDENTIAL_CHARS and b" " not in credential
    return credential.decode() if is_plain and scheme.lower() == b"bearer" else None


def _host_of(scope: Scope) -> str:
    """Return where a request comes from; empty where the server does not say, as over a Unix socket."""
    client = scope.get("client")
    return "" if client is None else str(client[0])


def network_of(host: str) -> str:
    """Return by what the address of a caller counts: an IPv6 /64, which is one household; all that is not an address
    is one.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_NETWORK_BITS), strict=False))


def _tells_of_a_proxy(header: bytes) -> bool:
    return header in _FORWARDED or header.startswith(_X_FORWARDED)
