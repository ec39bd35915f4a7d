// Command strict decodes the manifests on standard input into the types of Kubernetes, and fails at a field that they
// don't have. It is a separate module, so that the relay does not depend on Kubernetes.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// types has a new value for each kind. ServiceMonitor stands here with the fields that the chart uses, as of
// monitoring.coreos.com/v1, since its own module brings a hundred others.
var types = map[string]func() any{
	"apps/v1 StatefulSet":                     func() any { return new(appsv1.StatefulSet) },
	"v1 ConfigMap":                            func() any { return new(corev1.ConfigMap) },
	"v1 Service":                              func() any { return new(corev1.Service) },
	"policy/v1 PodDisruptionBudget":           func() any { return new(policyv1.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return new(networkingv1.NetworkPolicy) },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return new(serviceMonitor) },
}

type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port        string `json:"port"`
			Interval    string `json:"interval"`
			Relabelings []struct {
				TargetLabel string `json:"targetLabel"`
				Replacement string `json:"replacement"`
			} `json:"relabelings"`
			Authorization *struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
		} `json:"endpoints"`
	} `json:"spec"`
}

func main() {
	kinds, err := decode(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "strict:", err)
		os.Exit(1)
	}
	fmt.Println(strings.Join(kinds, ", "))
}

func decode(r io.Reader) (kinds []string, err error) {
	all, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	for part := range bytes.SplitSeq(all, []byte("\n---\n")) {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(part, &meta); err != nil {
			return nil, err
		}
		if meta.Kind == "" {
			continue
		}
		kind := meta.APIVersion + " " + meta.Kind
		make, ok := types[kind]
		if !ok {
			return nil, fmt.Errorf("%s: no type is known", kind)
		}
		// Case counts, as for the API server: package yaml alone would take any.
		text, err := yaml.YAMLToJSONStrict(part)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		if faults, err := json.UnmarshalStrict(text, make()); err != nil || len(faults) > 0 {
			return nil, fmt.Errorf("%s: %w", kind, errors.Join(append(faults, err)...))
		}
		kinds = append(kinds, meta.Kind)
	}
	if len(kinds) == 0 {
		return nil, errors.New("there is no manifest")
	}
	return kinds, nil
}
