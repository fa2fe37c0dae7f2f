package io.sparkevents.listener;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.Properties;

/** Local properties that assign a job or a stage to its query, group or SQL execution, redacted as Spark does. */
public final class JobProperties {
  private static final String[] KEYS = {
    "spark.job.description",
    "spark.jobGroup.id",
    "spark.sql.execution.id",
    "callSite.short",
    "sql.streaming.queryId",
    "streaming.sql.batchId",
    "spark.sql.streaming.multipleWatermarkPolicy",
  };

  private final Redaction redaction;
  /**
   * Last value of each key, and its redacted form in {@link #lastWritten}. Most values repeat from job to job, and the
   * pattern takes longer than the rest of a record. Used by the writer thread only.
   */
  private final String[] last = new String[KEYS.length];
  private final String[] lastWritten = new String[KEYS.length];

  public JobProperties(Redaction redaction) {
    this.redaction = redaction;
  }

  /** Returns the raw values in the order of the keys; the writer thread redacts them later. */
  public static String[] select(Properties all) {
    String[] selected = new String[KEYS.length];
    if (all != null) {
      for (int i = 0; i < KEYS.length; i++) {
        selected[i] = all.getProperty(KEYS[i]);
      }
    }
    return selected;
  }

  public void write(JsonGenerator json, String[] selected) throws IOException {
    json.writeObjectFieldStart("properties");
    for (int i = 0; i < KEYS.length; i++) {
      if (selected[i] != null) {
        json.writeStringField(KEYS[i], safe(i, selected[i]));
      }
    }
    json.writeEndObject();
  }

  private String safe(int key, String value) {
    if (!value.equals(last[key])) {
      last[key] = value;
      lastWritten[key] = Text.cut(redaction.redact(KEYS[key], value));
    }
    return lastWritten[key];
  }
}
