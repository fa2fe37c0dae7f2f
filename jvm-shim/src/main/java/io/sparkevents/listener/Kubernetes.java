package io.sparkevents.listener;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The pod in which the driver runs, according to its environment; Spark's settings, which name the pod of a driver in
 * cluster mode, override it.
 */
public final class Kubernetes {
  /** File that Kubernetes mounts into every pod that has a service account. */
  static final Path NAMESPACE = Paths.get("/var/run/secrets/kubernetes.io/serviceaccount/namespace");

  /** Variables that a pod's manifest may set from the downward API, the more specific name first. */
  private static final String[][] VARIABLES = {
    {"pod", "K8S_POD_NAME", "POD_NAME", "HOSTNAME"},
    {"namespace", "K8S_NAMESPACE_NAME", "POD_NAMESPACE"},
    {"node", "K8S_NODE_NAME", "NODE_NAME"},
    {"container", "K8S_CONTAINER_NAME", "CONTAINER_NAME"},
  };

  private Kubernetes() {}

  /** Returns the known names; empty outside Kubernetes. */
  public static Map<String, String> of(Map<String, String> environment, Path namespace) {
    Map<String, String> known = new LinkedHashMap<>();
    if (!environment.containsKey("KUBERNETES_SERVICE_HOST")) {
      return known;
    }
    for (String[] names : VARIABLES) {
      for (int i = 1; i < names.length; i++) {
        String value = environment.getOrDefault(names[i], "");
        if (!value.isEmpty()) {
          known.putIfAbsent(names[0], value);
        }
      }
    }
    if (!known.containsKey("namespace")) {
      try {
        known.put("namespace", new String(Files.readAllBytes(namespace), StandardCharsets.UTF_8).trim());
      } catch (IOException missing) {
        // The pod has no service account.
      }
    }
    return known;
  }
}
