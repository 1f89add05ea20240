"""Seeded logs of any size with a planted truth, for tests and benchmarks of scale; never a stand-in for real data.

`config.Config` says what is planted, `plan.Plan` holds what is fixed for the whole log (`given.plan_on` makes one on a
catalogue that exists), `log.day` makes one day of it, `write.raw` and `write.artifact` write it. Equal configs give
equal bytes, and a day depends on nothing but the config.
"""
