"""Scores of the field, counts first and ratio last; numpy only, no torch.

counts          tp, fp and fn of each label, which add up; micro, macro, weighted, no default
schemes         tags to spans and back, in every scheme; the schemes are data
spans           span scores, strict and by conlleval's rules, from strings, integers and span sets
classification  single-label and multi-label scores; head, mid and tail labels
ranking         average precision
squad           SQuAD 1.1 and 2.0; `quoref` several spans, `cmrc` Chinese
thresholds      decision thresholds by cross-fitting (`crossfit`); `biases` the same for logits
operating       the threshold for a target, such as a precision, with its test (`binomial`)
headroom        how much F1 could be gained, and where
calibration     calibration error and temperature
"""
