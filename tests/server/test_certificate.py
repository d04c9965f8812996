"""The server's certificate: when it ends, and what happens when its files change."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pegboard.server.certificate import CERTIFICATE_WARN_S, ServerCertificate, end_of
from tests.operate.outages import certify


def certificate_at(folder: Path, *, now: float) -> ServerCertificate:
    return ServerCertificate(folder / "certificate.pem", None, wall_clock=lambda: now)


@pytest.mark.parametrize("year", [1999, 2049, 2050, 2300])
def test_the_end_of_a_certificate_is_read_in_both_forms_of_a_time(tmp_path: Path, year: int) -> None:
    ends = datetime(year, 7, 1, 12, 30, tzinfo=UTC)
    certify(tmp_path, ends=ends)
    assert end_of((tmp_path / "certificate.pem").read_bytes()) == ends.timestamp()


async def test_a_certificate_is_a_fault_from_seven_days_before_its_end(tmp_path: Path) -> None:
    ends = datetime(2030, 1, 8, tzinfo=UTC)
    certify(tmp_path, ends=ends)
    await certificate_at(tmp_path, now=ends.timestamp() - CERTIFICATE_WARN_S).check()
    with pytest.raises(OSError, match="expires at 2030-01-08 00:00 UTC"):
        await certificate_at(tmp_path, now=ends.timestamp() - CERTIFICATE_WARN_S + 1).check()
    with pytest.raises(OSError, match="expired at 2030-01-08 00:00 UTC"):
        await certificate_at(tmp_path, now=ends.timestamp()).check()


async def test_a_renewed_certificate_that_cannot_be_used_leaves_the_old_one(tmp_path: Path) -> None:
    certify(tmp_path, ends=datetime(2030, 1, 8, tzinfo=UTC))
    certificate = certificate_at(tmp_path, now=0.0)
    context = certificate.context
    (tmp_path / "certificate.pem").write_text("half a certificate")
    with pytest.raises(OSError, match="the old certificate stays"):
        await certificate.check()
    certify(tmp_path, ends=datetime(2031, 1, 8, tzinfo=UTC))
    await certificate.check()
    assert certificate.context is context


def test_a_text_without_a_certificate_has_no_end() -> None:
    # The messages are those of `cryptography`, and may change.
    with pytest.raises(ValueError):  # noqa: PT011
        end_of(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ValueError):  # noqa: PT011
        end_of(ssl.DER_cert_to_PEM_cert(b"nothing").encode())
