// Makes shared/apiserver/src/builtin/schemas.json: the shape of every built-in kind that the embedded API server knows.
//
// It reads OpenAPI v3 documents of a real kube-apiserver from its standard input, one JSON document after the other, keeps
// the structure (types, defaults, list and map kinds, merge keys; no descriptions) of everything reachable from those kinds,
// and adds to each property how Go encodes it, which OpenAPI does not say: `x-go` is "p" (pointer, left out when nil), "n"
// (pointer, written even when nil), "o" (value, left out when zero) or "r" (value, always written) and the kind of value.
package main

import (
	"encoding/json"
	"io"
	"os"
	"reflect"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var roots = []any{
	corev1.Namespace{}, corev1.Pod{}, corev1.Event{}, corev1.Secret{}, corev1.ConfigMap{}, corev1.ServiceAccount{},
	corev1.LimitRange{}, corev1.PodTemplate{}, corev1.Node{}, corev1.Service{}, corev1.Binding{}, eventsv1.Event{}, batchv1.Job{},
	coordinationv1.Lease{}, rbacv1.Role{}, rbacv1.RoleBinding{}, rbacv1.ClusterRole{}, rbacv1.ClusterRoleBinding{},
	schedulingv1.PriorityClass{}, nodev1.RuntimeClass{}, policyv1.Eviction{}, autoscalingv1.Scale{},
	admissionregistrationv1.ValidatingWebhookConfiguration{}, admissionregistrationv1.MutatingWebhookConfiguration{},
	apiextensionsv1.CustomResourceDefinition{}, authenticationv1.TokenReview{}, authenticationv1.TokenRequest{},
	authenticationv1.SelfSubjectReview{},
	authorizationv1.SubjectAccessReview{}, authorizationv1.SelfSubjectAccessReview{}, authorizationv1.LocalSubjectAccessReview{},
	authorizationv1.SelfSubjectRulesReview{}, metav1.DeleteOptions{}, metav1.Status{},
}

var shapes = map[string]map[string]string{}

func definition(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	host := strings.Split(parts[0], ".")
	for i, j := 0, len(host)-1; i < j; i, j = i+1, j-1 {
		host[i], host[j] = host[j], host[i]
	}
	return strings.Join(append(host, parts[1:]...), ".") + "." + t.Name()
}

func fields(t reflect.Type, into map[string]string) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		if field.Anonymous && inner.Kind() == reflect.Struct && (name == "" || strings.Contains(options, "inline")) {
			fields(inner, into)
			continue
		}
		if name == "-" || name == "" {
			continue
		}
		omit := strings.Contains(options, "omitempty")
		zero := strings.Contains(options, "omitzero")
		flag := "r"
		kind := inner.Kind()
		custom := inner.Implements(marshaler) || reflect.PointerTo(inner).Implements(marshaler)
		switch {
		case kind == reflect.Pointer:
			flag = "p"
			if !omit {
				flag = "n"
			}
			inner = inner.Elem()
			kind = inner.Kind()
			custom = inner.Implements(marshaler) || reflect.PointerTo(inner).Implements(marshaler)
		case zero:
			flag = "o"
		case omit && kind != reflect.Struct:
			flag = "o"
		}
		shown := kind.String()
		if custom {
			shown = definition(inner)
			if shown == "io.k8s.apimachinery.pkg.apis.meta.v1.Time" || shown == "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime" {
				shown = inner.Name()
			}
		} else if kind == reflect.Slice && inner.Elem().Kind() == reflect.Uint8 {
			shown = "bytes"
		}
		into[name] = flag + " " + shown
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && !inner.Implements(marshaler) && !reflect.PointerTo(inner).Implements(marshaler) {
			visit(inner)
		}
	}
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func visit(t reflect.Type) {
	name := definition(t)
	if _, seen := shapes[name]; seen {
		return
	}
	into := map[string]string{}
	shapes[name] = into
	fields(t, into)
}

var kept = []string{
	"type", "format", "default", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
	"x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key", "x-kubernetes-int-or-string",
	"x-kubernetes-preserve-unknown-fields", "enum", "oneOf", "x-kubernetes-group-version-kind",
}

// What is kept of a schema; a reference becomes {"$ref": definition}.
func reduce(in map[string]any, found func(string)) map[string]any {
	out := map[string]any{}
	for _, key := range kept {
		if value, there := in[key]; there {
			out[key] = value
		}
	}
	if reference, is := in["$ref"].(string); is {
		name := reference[strings.LastIndex(reference, "/")+1:]
		found(name)
		out["$ref"] = name
	}
	if all, is := in["allOf"].([]any); is && len(all) == 1 {
		for key, value := range reduce(all[0].(map[string]any), found) {
			out[key] = value
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, is := in[key].(map[string]any); is {
			out[key] = reduce(inner, found)
		}
	}
	if properties, is := in["properties"].(map[string]any); is {
		reduced := map[string]any{}
		for name, inner := range properties {
			reduced[name] = reduce(inner.(map[string]any), found)
		}
		out["properties"] = reduced
	}
	return out
}

func main() {
	for _, root := range roots {
		visit(reflect.TypeOf(root))
	}
	published := map[string]map[string]any{}
	decoder := json.NewDecoder(os.Stdin)
	for {
		var document struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := decoder.Decode(&document); err == io.EOF {
			break
		} else if err != nil {
			panic(err)
		}
		for name, schema := range document.Components.Schemas {
			published[name] = schema
		}
	}
	result := map[string]any{}
	var keep func(string)
	keep = func(name string) {
		if _, seen := result[name]; seen || published[name] == nil {
			return
		}
		result[name] = nil
		schema := reduce(published[name], keep)
		if properties, is := schema["properties"].(map[string]any); is {
			for field, shape := range shapes[name] {
				if property, is := properties[field].(map[string]any); is {
					property["x-go"] = shape
				}
			}
		}
		result[name] = schema
	}
	for _, root := range roots {
		keep(definition(reflect.TypeOf(root)))
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(result); err != nil {
		panic(err)
	}
}
