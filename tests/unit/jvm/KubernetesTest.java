package io.sparkevents;

import static io.sparkevents.Checks.is;

import io.sparkevents.listener.Kubernetes;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** Tests of the driver's place on Kubernetes. */
final class KubernetesTest {
  private static Map<String, String> environment(String... variables) {
    Map<String, String> environment = new TreeMap<>();
    for (int i = 0; i < variables.length; i += 2) {
      environment.put(variables[i], variables[i + 1]);
    }
    return environment;
  }

  private static Map<String, String> of(Map<String, String> environment, Path namespace) {
    return new TreeMap<>(Kubernetes.of(environment, namespace));
  }

  @Test
  void thePodIsKnownFromItsEnvironment() throws Exception {
    Path namespace = Files.createTempDirectory("pod").resolve("namespace");
    is(of(environment("HOSTNAME", "h", "NODE_NAME", "n"), namespace), environment());
    Map<String, String> pod = environment("KUBERNETES_SERVICE_HOST", "10.0.0.1", "HOSTNAME", "driver", "NODE_NAME", "");
    is(of(pod, namespace), environment("pod", "driver"));
    Files.write(namespace, "streaming\n".getBytes("UTF-8"));
    is(of(pod, namespace), environment("pod", "driver", "namespace", "streaming"));
    pod.putAll(environment("POD_NAME", "p", "POD_NAMESPACE", "s", "NODE_NAME", "n", "K8S_NODE_NAME", "k"));
    pod.put("CONTAINER_NAME", "c");
    is(of(pod, namespace), environment("pod", "p", "namespace", "s", "node", "k", "container", "c"));
  }
}
