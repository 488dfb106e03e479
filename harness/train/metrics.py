"""Metrics of predictions, in float64."""

from __future__ import annotations

import numpy as np


def accuracy(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Share of examples [S] whose class is right."""
    return float(np.mean(predicted == targets))


def _is_constant(values: np.ndarray) -> bool:
    # A correlation with a constant is undefined; it says nothing about the targets.
    return bool(np.all(values == values[0]))


def pearson(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Pearson's r of [S] and [S]; 0 for constant predictions."""
    from scipy.stats import pearsonr

    if _is_constant(predicted):
        return 0.0
    return float(pearsonr(predicted.astype(np.float64), targets.astype(np.float64)).statistic)


def spearman(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Spearman's rank correlation, ties at their mean rank; 0 for constant predictions."""
    from scipy.stats import spearmanr

    if _is_constant(predicted):
        return 0.0
    return float(spearmanr(predicted, targets).statistic)


def mse(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Mean squared error over examples and features."""
    return float(np.mean((predicted.astype(np.float64) - targets.astype(np.float64)) ** 2))


def relative_mse(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Mean squared error over the targets' variance: 1 for the best constant, 0 for perfect."""
    exact = targets.astype(np.float64)
    return mse(predicted, targets) / float(np.mean((exact - exact.mean(axis=0)) ** 2))


METRICS = {
    "accuracy": accuracy,
    "pearson": pearson,
    "spearman": spearman,
    "mse": mse,
    "relative_mse": relative_mse,
}
