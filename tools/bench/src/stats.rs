//! Medians, spreads and means.

use serde::Serialize;
use std::fmt;

/// Median, least and greatest of some values. Displayed as `2.50 (1.00..4.00)`: precision is that of the numbers, 2
/// by default; width pads the whole text on the right.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The middle value.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
}

impl Spread {
    /// The spread of `values`; all zero if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        Self {
            median: median(&values),
            min: percentile(&values, 0.0),
            max: percentile(&values, 100.0),
        }
    }

    /// `min..max` with so many decimals.
    pub(crate) fn range(&self, decimals: usize) -> String {
        format!("{:.decimals$}..{:.decimals$}", self.min, self.max)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (decimals, width) = (f.precision().unwrap_or(2), f.width().unwrap_or(0));
        let text = format!("{:.decimals$} ({})", self.median, self.range(decimals));
        write!(f, "{text:<width$}")
    }
}

/// The value below which `percent` of the sorted `values` are; 0 if there are none.
pub(crate) fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rank is between 0 and the number of values"
    )]
    let rank = (percent / 100.0 * last as f64).round() as usize;
    sorted.get(rank).copied().unwrap_or(0.0)
}

/// The middle value, or the mean of the two in the middle; 0 if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.get(half) {
        None => 0.0,
        Some(middle) if sorted.len() % 2 == 1 => *middle,
        Some(above) => (sorted[half - 1] + above) / 2.0,
    }
}

/// The geometric mean; 0 if there are no values.
pub(crate) fn geometric_mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_list() {
        let values = [4.0, 1.0, 3.0, 2.0, 5.0];
        assert_eq!(median(&values), 3.0);
        assert_eq!(percentile(&values, 0.0), 1.0);
        assert_eq!(percentile(&values, 100.0), 5.0);
        assert_eq!(percentile(&[], 50.0), 0.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn the_median_of_an_even_number_of_values_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(median(&[4.0, 1.0, 100.0, 2.0]), 3.0);
    }

    #[test]
    fn a_spread_is_displayed_with_its_range() {
        let spread = Spread::of([1.0, 2.5, 4.0]);
        assert_eq!(format!("{spread}|"), "2.50 (1.00..4.00)|");
        assert_eq!(format!("{spread:16.1}|"), "2.5 (1.0..4.0)  |");
        assert_eq!(spread.range(0), "1..4");
    }

    #[test]
    fn the_geometric_mean_of_a_factor_and_its_inverse_is_one() {
        assert!((geometric_mean(&[4.0, 0.25]) - 1.0).abs() < 1e-12);
    }
}
