"""Makes statistics.json beside it: values that scipy computes, for the tests
of longhaul-measure. Run with numpy and scipy (made with 1.17.1, numpy 2.4.6):

    python3 -m venv venv && venv/bin/pip install scipy && venv/bin/python make.py

Everything here is exact up to rounding: bootstrap distributions of five values
are enumerated, all 3125 resamples, instead of drawn.
"""

import itertools
import json
import pathlib

import numpy as np
from scipy import special, stats

# Five throughputs with one slow run, and forty of a skewed distribution.
SMALL = [0.912, 0.874, 0.903, 0.655, 0.921]
OTHER = [0.861, 0.842, 0.866, 0.612, 0.874]
SKEWED = [round(float(v), 6) for v in stats.lognorm(0.5).ppf(np.linspace(0.02, 0.98, 40))]
PROBABILITIES = [0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.975, 1.0]
# Where the normal distribution and its inverse are compared.
POINTS = [-7.5, -4.0, -1.959963984540054, -1.0, -0.1, 0.0, 0.3, 2.5, 5.0]
TAILS = [1e-9, 0.001, 0.025, 0.31, 0.5, 0.8413, 0.975, 0.9999999]


def summary(values):
    return {
        "values": values,
        "mean": np.mean(values),
        "standard_error": stats.sem(values) if len(values) > 1 else None,
        "median": np.median(values),
        "quantiles": list(np.quantile(values, PROBABILITIES, method="linear")),
        "spread": stats.median_abs_deviation(values, scale="normal"),
    }


def resamples(values):
    return np.array(list(itertools.product(values, repeat=len(values))))


def bca(values, statistic, level):
    """Efron and Tibshirani (1993), equations 14.9 to 14.15."""
    draws = np.sort(np.apply_along_axis(statistic, 1, resamples(values)))
    estimate = statistic(values)
    below = (np.sum(draws < estimate) + np.sum(draws <= estimate)) / 2 / len(draws)
    bias = special.ndtri(below)
    left_out = np.array([statistic(np.delete(values, i)) for i in range(len(values))])
    away = left_out.mean() - left_out
    acceleration = np.sum(away**3) / (6 * np.sum(away**2) ** 1.5)
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        shifted = bias + special.ndtri(tail)
        ends.append(special.ndtr(bias + shifted / (1 - acceleration * shifted)))
    return {
        "acceleration": acceleration,
        "interval": list(np.quantile(draws, ends)),
        "percentile": list(np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])),
    }


def scipy_agrees(values, statistic, level, found):
    """scipy's own bootstrap, drawn, comes to the same within its noise."""
    drawn = stats.bootstrap(
        (values,), statistic, confidence_level=level, n_resamples=200_000,
        method="BCa", random_state=7, vectorized=False,
    ).confidence_interval
    assert np.allclose([drawn.low, drawn.high], found["interval"], atol=2e-3), (drawn, found)


bootstrap = {}
for name, statistic in (("mean", np.mean), ("median", np.median)):
    bootstrap[name] = bca(SMALL, statistic, 0.95)
    if name == "mean":
        scipy_agrees(SMALL, statistic, 0.95, bootstrap[name])

differences = np.array(SMALL) - np.array(OTHER)
out = {
    "made_with": "scipy " + __import__("scipy").__version__ + ", numpy " + np.__version__,
    "probabilities": PROBABILITIES,
    "summaries": [summary(SMALL), summary(SKEWED), summary([3.25]), summary([2.0, 1.0])],
    "normal": [[x, float(special.ndtr(x))] for x in POINTS],
    "normal_inverse": [[p, float(special.ndtri(p))] for p in TAILS],
    "bootstrap_values": SMALL,
    "bootstrap_level": 0.95,
    "bootstrap": bootstrap,
    "paired": {
        "first": SMALL,
        "second": OTHER,
        "mean": np.mean(differences),
        "standard_error": stats.sem(differences),
        "bootstrap": bca(differences, np.mean, 0.95),
    },
}
path = pathlib.Path(__file__).with_name("statistics.json")
path.write_text(json.dumps(out, indent=1, default=float) + "\n")
print(path)
