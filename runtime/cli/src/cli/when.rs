//! Parses and formats times.

use std::time::Duration;

const SECOND: u64 = 1000;
const DAY: u64 = 86_400 * SECOND;

/// A time given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Milliseconds since 1970.
    At(u64),
    /// An age.
    Ago(Duration),
}

/// An invalid time.
#[derive(Debug, thiserror::Error)]
#[error(
    "must be a UTC date or time, such as 2026-11-22 or 2026-11-22T08:30:00Z, or an age, such as 90m, 12h or 7d"
)]
pub(crate) struct ParseTimeError;

impl When {
    /// The time in milliseconds since 1970, given the current time.
    pub(crate) fn to_millis(self, now: u64) -> u64 {
        match self {
            Self::At(at) => at,
            Self::Ago(time) => {
                now.saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
        }
    }
}

pub(super) fn parse(text: &str) -> Result<When, ParseTimeError> {
    parse_age(text)
        .map(When::Ago)
        .or_else(|| parse_date_time(text).map(When::At))
        .ok_or(ParseTimeError)
}

fn parse_age(text: &str) -> Option<Duration> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let (unit, seconds) = units.into_iter().find(|(unit, _)| text.ends_with(*unit))?;
    let count = number(text.strip_suffix(unit)?)?;
    Some(Duration::from_secs(count.checked_mul(seconds)?))
}

fn parse_date_time(text: &str) -> Option<u64> {
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00Z"));
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = fields(time.strip_suffix('Z')?, ':', [2, 2, 2])?;
    let in_range = hour < 24 && minute < 60 && second < 60 && year >= 1970;
    let days = days(year, month, day).filter(|_| in_range)?;
    // Invalid days, such as April 31, are formatted differently.
    let same = date == format_time(days * DAY).split(' ').next()?;
    same.then_some(days * DAY + (hour * 3600 + minute * 60 + second) * SECOND)
}

fn fields(text: &str, between: char, lengths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(between);
    let mut found = [0; 3];
    for (field, length) in found.iter_mut().zip(lengths) {
        *field = number(parts.next().filter(|part| part.len() == length)?)?;
    }
    parts.next().is_none().then_some(found)
}

/// Parses digits, without a sign.
fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// Days since 1970. Years start in March, so that leap days come last.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month > 2 { year } else { year - 1 };
    let month = (month + 9) % 12;
    let of_year = (153 * month + 2) / 5 + day.checked_sub(1)?;
    let of_years = 365 * year + year / 4 - year / 100 + year / 400;
    (of_years + of_year).checked_sub(719_468)
}

/// Formats a UTC time, such as `2026-11-22 08:30:00Z`.
pub(crate) fn format_time(millis: u64) -> String {
    let (days, seconds) = (millis / DAY + 719_468, millis % DAY / SECOND);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let of_era_year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_era_year + of_era_year / 4 - of_era_year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + of_era_year + u64::from(month < 3);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_times_can_be_parsed() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1999-12-31T23:59:59Z", 946_684_799_000),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
            ("2000-03-01T00:00:00Z", 951_868_800_000),
            ("2026-11-22T05:35:40Z", 1_795_325_740_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000),
        ] {
            assert_eq!(format_time(millis), text.replace('T', " "));
            assert_eq!(parse(text).unwrap(), When::At(millis), "{text}");
        }
        for day in 0..80_000 {
            let text = format_time(day * DAY);
            let (date, _) = text.split_once(' ').unwrap();
            assert_eq!(parse(date).unwrap(), When::At(day * DAY), "{text}");
        }
    }

    #[test]
    fn age_is_relative_to_now() {
        for (text, seconds) in [("5s", 5), ("90m", 5400), ("12h", 43_200), ("7d", 604_800)] {
            assert_eq!(
                parse(text).unwrap().to_millis(DAY * 10),
                DAY * 10 - seconds * SECOND
            );
        }
        assert_eq!(parse("7d").unwrap().to_millis(1), 0);
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in [
            "",
            "d",
            "-1d",
            "+1d",
            "1w",
            "2026",
            "2026-11",
            "2026-1-2",
            "2026-02-30",
            "2026-13-01",
            "2026-00-10",
            "2026-01-00",
            "1969-12-31",
            "2026-11-22T24:00:00Z",
            "2026-11-22T05:35:40",
            "2026-11-22 05:35:40Z",
            "99999999999999999999d",
            "2026-11-22-01",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
