package io.sparkevents.listener;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;

/**
 * URLs for the investigation of a failure, the orchestrator's run that submitted the application, and the driver's place
 * on Kubernetes.
 */
final class Links {
  /** Names of the links and Spark's keys; the sidecar reads the same keys from event logs. */
  private static final String[][] KEYS = {
    {"history", "spark.yarn.historyServer.address"},
    {"tracking", "spark.org.apache.hadoop.yarn.server.webproxy.amfilter.AmIpFilter.param.PROXY_URI_BASES"},
    {"pod", "spark.kubernetes.driver.pod.name"},
    {"namespace", "spark.kubernetes.namespace"},
    {"container", "spark.kubernetes.driver.podTemplateContainerName"},
    {"submitInDriver", "spark.kubernetes.submitInDriver"},
    {"parentRun", "spark.openlineage.parentRunId"},
    {"parentNamespace", "spark.openlineage.parentJobNamespace"},
    {"parentJob", "spark.openlineage.parentJobName"},
    {"rootRun", "spark.openlineage.rootParentRunId"},
    {"rootNamespace", "spark.openlineage.rootParentJobNamespace"},
    {"rootJob", "spark.openlineage.rootParentJobName"},
    {"lineageContext", "spark.openlineage.context"},
  };

  private final Map<String, String> known = new LinkedHashMap<>();

  Links(SparkConf conf) {
    known.putAll(Kubernetes.of(System.getenv(), Kubernetes.NAMESPACE));
    for (String[] key : KEYS) {
      String value = conf.get(key[1], "");
      if (!value.isEmpty()) {
        known.put(key[0], value);
      }
    }
  }

  void write(JsonGenerator json) throws IOException {
    json.writeObjectFieldStart("links");
    for (Map.Entry<String, String> link : known.entrySet()) {
      json.writeStringField(link.getKey(), link.getValue());
    }
    json.writeEndObject();
  }

  /** Writes the URL of the driver's UI; the URL is unknown until the SparkContext is complete. */
  static void writeUi(JsonGenerator json) throws IOException {
    SparkContext active = BusEvent.activeContext();
    if (active != null && active.uiWebUrl().isDefined()) {
      json.writeStringField("ui", active.uiWebUrl().get());
    }
  }
}
