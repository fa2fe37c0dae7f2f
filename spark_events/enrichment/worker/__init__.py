"""Entry point of a task in Spark's Python workers: conversion from Arrow to the engine and back.

The code of this package runs in the task's thread.
"""
