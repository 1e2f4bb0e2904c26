"""The values of `format` that are enforced, as expressions in the backend's dialect.

Each gives a part of what its RFC allows where all of it would not help: names of hosts have at most four parts of at
most 61 characters, fractions of a second six digits, and seconds end at 59.
"""

from octavo.decoding.structured.regex_dialect import UNWRITABLE

_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_FOURTHS = "(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = f"(?:[0-9]{{2}}{_FOURTHS}|{_FOURTHS}00)"
_LONG = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = "02-(?:0[1-9]|1[0-9]|2[0-8])"
_DATE = f"(?:{_YEAR}-(?:{_LONG}|{_SHORT}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{_CLOCK})"

_N = "[0-9]{1,6}"
_SECONDS = f"{_N}S"
_MINUTES = f"{_N}M(?:{_SECONDS})?"
_HOURS = f"{_N}H(?:{_MINUTES})?"
_DURATION_TIME = f"T(?:{_HOURS}|{_MINUTES}|{_SECONDS})"
_DAYS = f"{_N}D"
_MONTHS = f"{_N}M(?:{_DAYS})?"
_YEARS = f"{_N}Y(?:{_MONTHS})?"
_DURATION = f"P(?:(?:{_YEARS}|{_MONTHS}|{_DAYS})(?:{_DURATION_TIME})?|{_DURATION_TIME}|{_N}W)"

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,59}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
_EMAIL = rf"{_ATOM}(?:\.{_ATOM}){{0,2}}@{_HOST}"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = "[0-9A-Fa-f]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = "|".join(
    (
        f"(?:{_H16}:){{6}}{_LS32}",
        f"::(?:{_H16}:){{5}}{_LS32}",
        f"(?:{_H16})?::(?:{_H16}:){{4}}{_LS32}",
        f"(?:(?:{_H16}:){{0,1}}{_H16})?::(?:{_H16}:){{3}}{_LS32}",
        f"(?:(?:{_H16}:){{0,2}}{_H16})?::(?:{_H16}:){{2}}{_LS32}",
        f"(?:(?:{_H16}:){{0,3}}{_H16})?::{_H16}:{_LS32}",
        f"(?:(?:{_H16}:){{0,4}}{_H16})?::{_LS32}",
        f"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
        f"(?:(?:{_H16}:){{0,6}}{_H16})?::",
    )
)

_PCHAR = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_SEGMENTS = f"(?:/{_PCHAR}*)*"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]*:(?://{_HOST}(?::[0-9]{{1,4}})?{_SEGMENTS}|{_PCHAR}+{_SEGMENTS}){_TAIL}"

FORMATS = {
    "date": _DATE,  # RFC 3339, 5.6
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": _DURATION,  # RFC 3339, appendix A
    "email": _EMAIL,  # RFC 5322, 3.4.1, without quotes and comments
    "hostname": _HOST,  # RFC 1123, 2.1
    "ipv4": _IPV4,  # RFC 2673, 3.2
    "ipv6": _IPV6,  # RFC 4291, 2.2; the ABNF of RFC 3986
    "uri": _URI,  # RFC 3986
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",  # RFC 9562
    "json-pointer": f"(?:/(?:[^/~{UNWRITABLE}]|~[01])*)*",  # RFC 6901
}
