//! Random loss of a link, before its queue.

use std::fmt;
use std::str::FromStr;

use longhaul_units::{ParseShareError, Random, parse_share, share_text};

/// Model of random loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// No segment is lost.
    #[default]
    None,
    /// Each segment is lost with this probability, independently of others.
    Independent(f64),
    /// Segments are lost in bursts.
    Bursty(GilbertElliott),
}

/// The Gilbert–Elliott model with two states. Each segment may change the state, and is
/// then lost with the probability of the new state (E. N. Gilbert 1960, E. O. Elliott
/// 1963).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability of a change from good to bad per segment, 0 to 1.
    pub to_bad: f64,
    /// Probability of a change from bad to good per segment, 0 to 1. The bad state lasts
    /// `1 / to_good` segments on average.
    pub to_good: f64,
    /// Probability of loss in the good state, 0 to 1.
    pub loss_good: f64,
    /// Probability of loss in the bad state, 0 to 1.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// Returns the model with bursts of `length` lost segments on average and a mean loss
    /// of `mean` (0 to 1, less than 1). In the bad state all segments are lost, in the
    /// good state none.
    pub fn bursts(mean: f64, length: f64) -> GilbertElliott {
        let to_good = 1.0 / length;
        GilbertElliott {
            // The fraction of segments in the bad state is to_bad / (to_bad + to_good).
            to_bad: (to_good * mean / (1.0 - mean)).min(1.0),
            to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }

    /// Returns the fraction of segments in the bad state, 0 to 1.
    fn bad_share(self) -> f64 {
        let both = self.to_bad + self.to_good;
        if both > 0.0 { self.to_bad / both } else { 0.0 }
    }
}

impl Loss {
    /// Returns the long-term fraction of lost segments, 0 to 1.
    pub fn mean(self) -> f64 {
        match self {
            Loss::None => 0.0,
            Loss::Independent(probability) => probability,
            Loss::Bursty(model) => {
                let bad = model.bad_share();
                bad * model.loss_bad + (1.0 - bad) * model.loss_good
            }
        }
    }

    /// Returns all probabilities with their names.
    pub(super) fn probabilities(self) -> Vec<(&'static str, f64)> {
        match self {
            Loss::None => Vec::new(),
            Loss::Independent(probability) => vec![("loss", probability)],
            Loss::Bursty(model) => vec![
                ("loss: from good to bad", model.to_bad),
                ("loss: from bad to good", model.to_good),
                ("loss while good", model.loss_good),
                ("loss while bad", model.loss_bad),
            ],
        }
    }
}

/// Reasons why a loss cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseLossError {
    /// A fraction in the text is invalid.
    #[error(transparent)]
    Share(#[from] ParseShareError),
    /// The text has an unknown form.
    #[error(
        "\"{0}\" is not a loss: write a share such as 1e-5 or 0.1%, SHARE/LENGTH for bursts of LENGTH \
         segments, or ge:TO_BAD/TO_GOOD/LOSS_BAD/LOSS_GOOD"
    )]
    Form(String),
}

impl FromStr for Loss {
    type Err = ParseLossError;

    /// Parses `1e-5`, `0.1%`, `1e-4/8`, `ge:0.001/0.2/0.5/0`, `0`.
    fn from_str(text: &str) -> Result<Loss, ParseLossError> {
        let error = || ParseLossError::Form(text.to_owned());
        if let Some(model) = text.strip_prefix("ge:") {
            let all: Result<Vec<f64>, _> = model.split('/').map(parse_share).collect();
            let [to_bad, to_good, loss_bad, loss_good] = all?.try_into().map_err(|_| error())?;
            return Ok(Loss::Bursty(GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            }));
        }
        match text.split_once('/') {
            None => Ok(match parse_share(text)? {
                0.0 => Loss::None,
                probability => Loss::Independent(probability),
            }),
            Some((mean, length)) => {
                let mean = parse_share(mean)?;
                let length: f64 = length.parse().map_err(|_| error())?;
                if mean >= 1.0 || !(1.0..1e12).contains(&length) {
                    return Err(error());
                }
                Ok(Loss::Bursty(GilbertElliott::bursts(mean, length)))
            }
        }
    }
}

impl fmt::Display for Loss {
    /// Formats the loss in the form that `from_str` parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::None => write!(f, "0"),
            Loss::Independent(probability) => f.write_str(&share_text(*probability)),
            Loss::Bursty(m) => {
                let shares = [m.to_bad, m.to_good, m.loss_bad, m.loss_good].map(share_text);
                write!(f, "ge:{}", shares.join("/"))
            }
        }
    }
}

/// Random process that decides which segments are lost.
#[derive(Clone, Debug)]
pub struct LossProcess {
    loss: Loss,
    bad: bool,
    random: Random,
}

impl LossProcess {
    /// Creates a process. Its initial state is random, as in a long run.
    pub fn new(loss: Loss, random: Random) -> LossProcess {
        let mut process = LossProcess {
            loss,
            bad: false,
            random,
        };
        process.set(loss);
        process
    }

    /// Changes the loss model and draws a new initial state.
    pub fn set(&mut self, loss: Loss) {
        self.loss = loss;
        self.bad = match loss {
            Loss::Bursty(model) => self.random.happens(model.bad_share()),
            _ => false,
        };
    }

    /// True if the next segment is lost.
    pub fn takes(&mut self) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::Independent(probability) => self.random.happens(probability),
            Loss::Bursty(model) => {
                let change = if self.bad {
                    model.to_good
                } else {
                    model.to_bad
                };
                self.bad ^= self.random.happens(change);
                let loss = if self.bad {
                    model.loss_bad
                } else {
                    model.loss_good
                };
                self.random.happens(loss)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_losses() {
        assert_eq!("0".parse(), Ok(Loss::None));
        assert_eq!("1e-5".parse(), Ok(Loss::Independent(1e-5)));
        assert_eq!("1%".parse(), Ok(Loss::Independent(0.01)));
        let bursts: Loss = "1e-3/8".parse().unwrap();
        assert!((bursts.mean() - 1e-3).abs() < 1e-12, "{bursts:?}");
        assert_eq!(bursts.to_string().parse(), Ok(bursts));
        for text in ["", "x", "2", "-1", "1e-3/0.5", "1/8", "ge:1/1/1", "nan"] {
            assert!(text.parse::<Loss>().is_err(), "{text}");
        }
    }
}
