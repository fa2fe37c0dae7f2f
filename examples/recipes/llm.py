"""Classify texts with an OpenAI-compatible model: structured output, within a budget of tokens per minute."""

import json

import openai

from spark_events import Budget, Limits, OnFailure, Retry, enrich_batch

FIELDS = {"topic": {"enum": ["billing", "outage", "other"]}, "urgent": {"type": "boolean"}}
SCHEMA = {"type": "object", "properties": FIELDS, "required": [*FIELDS], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "ticket", "strict": True, "schema": SCHEMA}}


def enriched(df, base_url, api_key, model, tokens_per_minute):
    async def classify(row, ctx):
        ask = [{"role": "user", "content": f"Classify this ticket: {row.text}"}]
        answer = await ctx.resource.chat.completions.create(model=model, messages=ask, response_format=FORMAT)
        return {**json.loads(answer.choices[0].message.content), "tokens": answer.usage.total_tokens}

    # About four characters are a token; the prompt and an answer are about 50.
    budget = Budget(tokens_per_minute, cost=lambda row: 50 + len(row.text) / 4, usage=lambda answer: answer["tokens"])
    return enrich_batch(
        df,
        classify,
        output="topic string, urgent boolean, tokens long",
        resource=lambda: openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0),  # the engine retries
        limits=Limits(budget=budget, timeout=60, total_timeout=600),
        retry=Retry(on_invalid=True),  # an answer that is not valid JSON is asked again
        on_failure=OnFailure("dead_letter", max_ratio=0.1),
    )
