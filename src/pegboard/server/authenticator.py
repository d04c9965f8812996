"""Authenticator: identifies the caller of a request and the profiles it may use, for everything over HTTP."""

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
from pegboard.telemetry.served_request import REQUEST_ID

if TYPE_CHECKING:
    from pegboard.auth import verifier
    from pegboard.auth.verifier import Verifier
else:
    verifier = LazyModule("pegboard.auth.verifier")

CREDENTIAL_CHARS = 16 * KIB  # characters of a bearer credential
IPV6_NETWORK_BITS = 64  # the holder of one address has its whole network, so the network counts as one caller

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
    """An admitted caller and its profiles; `None` means every profile."""

    identity: Identity
    profiles: tuple[str, ...] | None = None
    through: dict[str | None, Principal] = field(default_factory=dict[str | None, Principal], repr=False, compare=False)
    """The principal of each profile, and of requests that do not name one, as one value for all requests."""


class _Admitted(NamedTuple):
    """A caller admitted by a grant, and the profiles at that time: valid while these are declared."""

    grant: Grant
    profiles: Mapping[str, Profile]
    caller: Authenticated


class _LetIn(NamedTuple):
    """A caller admitted with a credential: valid while the credential is and these profiles are declared."""

    still: Still
    profiles: Mapping[str, Profile]
    caller: Authenticated


_ANYBODY = Authenticated(identity=Identity())


class Authenticator:
    """Checks the credential of every request against the catalog's current identity rules.

    A catalog without rules admits everybody. With rules, a credential must be valid if one is sent, even if anonymous
    callers are allowed; a credential that cannot be checked is refused.

    Args:
        catalog: the catalog with the identity rules.
        profile: the profile of addresses that do not name one; by default `default`, or the first.
        identify: the host's own identification; it replaces the identity rules.
    """

    def __init__(self, catalog: Catalog, *, profile: str | None = None, identify: Identify | None = None) -> None:
        self._registry, self._profile, self._identify = catalog.registry, profile, identify
        self._principals = BoundedCache[tuple[str | None, str], Principal](max_entries=CALLERS_REMEMBERED)
        self._admitted = BoundedCache[int, _Admitted](max_entries=GRANTS_REMEMBERED)
        self._rules: IdentityRules | None = None
        self._local = HostGuard(LOOPBACK_HOSTS)

    @property
    def is_open(self) -> bool:
        """Whether callers need no credential."""
        return self._identify is None and self._registry.declarations.identity is None

    @property
    def needs_header(self) -> bool:
        """Whether `Authorization` is the only header that identifies callers; a host's function may read others."""
        return self._identify is None

    async def identify(self, scope: Scope) -> Authenticated | Refusal:
        """Identify the caller from the ASGI scope, and remove the credential from the scope."""
        if self._identify is not None:
            caller = await identified(self._identify, scope)
            return caller if isinstance(caller, Refusal) else self._from_host(caller)
        rules = self._registry.declarations.identity
        if rules is None:
            return _ANYBODY
        if rules is not self._rules:
            self._adopt(rules)
        headers = scope["headers"]
        shown = [value for name, value in headers if name == b"authorization"]
        if not shown:
            return self._anonymous(scope, rules.anonymous)
        # Code after this point never sees a credential, so it cannot forward or log one.
        scope["headers"] = [header for header in headers if header[0] != b"authorization"]
        return await self._verified(shown, scope)

    def at_hand(self, scope: Scope, named: str | None = None) -> Principal | None:
        """Return the caller without waiting, if the same credential was admitted before and would be admitted now.

        `None` means that `authenticate` must decide. Unlike that method, this one leaves the credential in the request.
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
        """Return the caller and the profile: the named one, or the one for requests that do not name any.

        A profile that the caller may not use is not found, like one that does not exist.
        """
        declared = self._registry.declarations
        if declared.identity is None and self._identify is None:
            return self._anonymous_principal(named, declared.profiles, _host_of(scope))
        caller = await self.identify(scope)
        return caller if isinstance(caller, Refusal) else self.as_profile(caller, named, scope)

    def as_profile(self, caller: Authenticated, named: str | None, scope: Scope) -> Principal | Refusal:
        """Return an identified caller with the named profile, or with the one for requests that do not name any."""
        profile = self._allowed(caller, named)
        if isinstance(profile, Refusal):
            self._log_refused_profile(scope, caller.identity, named)
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

    # -- the caller

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
        """Tell whether a request comes from this machine, and not through a local proxy."""
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
        key = ""
        try:
            grant = await judge.grant(credential)
            if grant is None:
                key = await judge.key_of(credential)
        except InsufficientScopeError:
            _log_refused(scope, "a required scope is missing")
            return self._challenges.insufficient(scope)
        except BadCredentialError as error:
            _log_refused(scope, error.reason, key=error.key)
            return self._challenges.invalid(scope)
        except UnavailableError:
            return _NOT_NOW
        if grant is None:
            _log_refused(scope, "no rule of identity.map gives it rights", key=key)
            return _NOT_HERE
        caller = self._granted(grant)
        # Under other rules, which may have been loaded meanwhile, the same credential may belong to somebody else.
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
        identity = Identity(
            credential=grant.owner,
            user=grant.user,
            space=grant.space,
            roles=grant.roles,
            proof=grant.proof,
            key=grant.key,
            key_id=grant.key_id,
            ends_at=grant.ends_at,
            subject_token=grant.token,
        )
        caller = Authenticated(identity=identity, profiles=grant.profiles or None)
        return self._admitted.remember(id(grant), _Admitted(grant, profiles, caller)).caller

    def _from_host(self, caller: Identified) -> Authenticated | Refusal:
        if not self._are_declared(caller.profiles):
            log.warning("identify gave %r the profiles %s: one does not exist, or none", caller.user, caller.profiles)
            return _NOT_HERE
        who = Identity(
            credential=caller.owner,
            user=caller.user,
            space=caller.space,
            roles=caller.roles,
            subject_token=caller.subject_token,
        )
        return Authenticated(identity=who, profiles=caller.profiles or None)

    def _are_declared(self, profiles: tuple[str, ...]) -> bool:
        """Tell whether these profiles can be used: all exist, and one is named if the catalog has any."""
        declared = self._registry.profiles
        return declared.keys() >= set(profiles) and bool(profiles or not declared)

    # -- the profile

    def profiles_of(self, caller: Authenticated) -> tuple[str, ...]:
        """Return the profiles that a caller may name."""
        declared = self._registry.declarations
        if declared.identity is None and self._identify is None:
            return tuple(declared.profiles)
        return tuple(name for name in caller.profiles or () if name in declared.profiles)

    def _allowed(self, caller: Authenticated, named: str | None) -> str | Refusal | None:
        profiles = self._registry.profiles
        if caller.profiles is None:
            # Only a catalog without profiles shows all its tools.
            return NOT_FOUND if named is not None or profiles else None
        if named is not None:
            return named if named in caller.profiles and named in profiles else NOT_FOUND
        for wanted in (self._profile, DEFAULT_PROFILE, *caller.profiles):
            if wanted in caller.profiles and wanted in profiles:
                return wanted
        return NOT_FOUND

    def _log_refused_profile(self, scope: Scope, who: Identity, named: str | None) -> None:
        """Log that a caller may not use a profile. An unknown name is left out: it may be a misplaced credential."""
        profile = named if named in self._registry.profiles else None
        if named is None:
            reason = "none of the caller's profiles exists"
        else:
            reason = f"the caller may not use the profile {profile!r}" if profile else "no such profile"
        fields = {"caller": who.user or who.key or who.credential, "reason": reason, **_request_field()}
        more = {"profile": profile, "key": who.key, "space": who.space, "address": _host_of(scope)}
        fields |= {name: value for name, value in more.items() if value}
        log.info("profile_refused: %s: %s", fields["caller"], reason, extra={"fields": fields})

    def _anonymous_principal(
        self, named: str | None, profiles: Mapping[str, Profile], host: str
    ) -> Principal | Refusal:
        """Return the principal of every caller, on a server without authentication."""
        profile = named or choose_profile(profiles, None if self._profile not in profiles else self._profile)
        if named is not None and named not in profiles:
            return NOT_FOUND
        principal = self._principals.get((profile, host))
        if principal is None:
            identity = _ANYBODY.identity
            address = network_of(host)
            principal = Principal(identity=identity, profile=profile, session=identity.credential, address=address)
            self._principals.remember((profile, host), principal)
        return principal


def _log_refused(scope: Scope, reason: str, *, key: str = "") -> None:
    """Log why a credential was refused, with the name of its key if that is known."""
    named = f" (key {key!r})" if key else ""
    fields = {"address": _host_of(scope), "reason": reason, **_request_field(), **({"key": key} if key else {})}
    log.info("credential_refused: %s%s", reason, named, extra={"fields": fields})


def _request_field() -> Mapping[str, str]:
    request_id = REQUEST_ID.get()
    return {"request_id": request_id} if request_id else {}


def _name_of(shown: bytes) -> bytes:
    """Return the cache key of an admitted credential: the credential itself is not kept."""
    return blake2b(shown, digest_size=_NAME_BYTES).digest()


def _bearer(shown: list[bytes]) -> str | None:
    """Return the credential of the only header that has one; `None` for anything else."""
    if len(shown) != 1:
        return None
    scheme, _, credential = shown[0].strip(b" \t").partition(b" ")
    credential = credential.strip(b" ")
    is_plain = credential.isascii() and 0 < len(credential) <= CREDENTIAL_CHARS and b" " not in credential
    return credential.decode() if is_plain and scheme.lower() == b"bearer" else None


def _host_of(scope: Scope) -> str:
    """Return the caller's address; empty if the server does not know it, as over a Unix socket."""
    client = scope.get("client")
    return "" if client is None else str(client[0])


def network_of(host: str) -> str:
    """Return the network that an address is counted as: the /64 of an IPv6 address; all values that are not addresses
    are one network.
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
