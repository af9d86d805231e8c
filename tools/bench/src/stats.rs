//! Medians, spreads and means.

use serde::Serialize;

/// The middle of some values and how far they reach.
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
    /// Of `values`; all zero if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        Self {
            median: median(&values),
            min: percentile(&values, 0.0),
            max: percentile(&values, 100.0),
        }
    }
}

/// The value below which `percent` of the sorted `values` lie; 0 if there are none.
pub(crate) fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rank lies between 0 and the number of values"
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
    fn the_median_of_an_even_number_of_values_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(median(&[4.0, 1.0, 100.0, 2.0]), 3.0);
    }

    #[test]
    fn the_geometric_mean_of_a_factor_and_its_inverse_is_one() {
        assert!((geometric_mean(&[4.0, 0.25]) - 1.0).abs() < 1e-12);
    }
}
