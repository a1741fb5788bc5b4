"""The name of a certificate's holder: who a client with TLS is, in audit logs, among members, and for grants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def name_in(auth_context: Mapping[str, Sequence[bytes]]) -> str:
    """Of a gRPC call: the common name, or, without one, the first other name; "" where the client showed no certificate.

    gRPC tells a missing common name as an empty one.
    """
    shown = (*auth_context.get("x509_common_name", ()), *auth_context.get("x509_subject_alternative_name", ()))
    return next((name.decode(errors="replace") for name in shown if name), "")
