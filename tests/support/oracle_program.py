"""Answers of apache-otava and statsmodels, by a Python of their own: cases on stdin, answers on stdout."""

import importlib.metadata
import json
import sys

from otava.analysis import compute_change_points
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint


def steps(values):
    found, _ = compute_change_points(values, window_len=50, max_pvalue=0.001, min_magnitude=0.025)
    return [int(point.index) for point in found]


asked = json.load(sys.stdin)
answers = {
    "versions": {name: importlib.metadata.version(name) for name in ("apache-otava", "statsmodels")},
    "series": [steps(values) for values in asked["series"]],
    "wilson": [[float(end) for end in proportion_confint(k, n, method="wilson")] for k, n in asked["wilson"]],
    "holm": [[float(p) for p in multipletests(family, method="holm")[1]] for family in asked["holm"]],
    "mcnemar": [float(mcnemar([[0, b], [c, 0]], exact=True).pvalue) for b, c in asked["mcnemar"]],
}
json.dump(answers, sys.stdout)
