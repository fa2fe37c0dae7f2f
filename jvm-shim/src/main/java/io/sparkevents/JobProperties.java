package io.sparkevents;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

/** Those local properties of a job or a stage that say what it belongs to, redacted as Spark does. */
final class JobProperties {
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

  JobProperties(Redaction redaction) {
    this.redaction = redaction;
  }

  Map<String, String> of(Properties all) {
    Map<String, String> selected = new LinkedHashMap<>();
    for (String key : KEYS) {
      String value = all == null ? null : all.getProperty(key);
      if (value != null) {
        selected.put(key, Text.cut(redaction.redact(key, value)));
      }
    }
    return selected;
  }

  static void write(JsonGenerator json, Map<String, String> selected) throws IOException {
    json.writeObjectFieldStart("properties");
    for (Map.Entry<String, String> property : selected.entrySet()) {
      json.writeStringField(property.getKey(), property.getValue());
    }
    json.writeEndObject();
  }
}
