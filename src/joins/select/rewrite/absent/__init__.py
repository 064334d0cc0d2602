"""Rewrite joins that look for rows which are not there, or for few of many (part of stage 1)."""
