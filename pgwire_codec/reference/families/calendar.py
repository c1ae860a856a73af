"""PostgreSQL's calendar and clock: proleptic Gregorian days, ranges of date and timestamp."""

from __future__ import annotations

from typing import Final

DAY: Final = 86_400_000_000  #: microseconds

# datatype/timestamp.h, moved to 1970: a date from Julian day 0 (4714-11-24 BC) to 5874897-12-31,
# a timestamp from the same day to the end of the year 294276.
MIN_DATE: Final = -2_440_588
MAX_DATE: Final = 2_145_042_905
MIN_TIMESTAMP: Final = -210_866_803_200_000_000
MAX_TIMESTAMP: Final = 9_224_318_015_999_999_999

_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days_in_month(year: int, month: int) -> int:
    """Return the number of days of a month; the year is astronomical: 0 is 1 BC."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _MONTH_DAYS[month - 1]


def days_from_date(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01; the year is astronomical."""
    # A year that starts in March has its leap day at its end.
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_from_days(days: int) -> tuple[int, int, int]:
    """Return year (astronomical), month and day of days since 1970-01-01."""
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return era * 400 + year + (month <= 2), month, day


def clock_text(micros: int) -> str:
    """Return ``hh:mm:ss.f`` with as many digits as it takes."""
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    shown = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    return shown + f".{fraction:06d}".rstrip("0") if fraction else shown
