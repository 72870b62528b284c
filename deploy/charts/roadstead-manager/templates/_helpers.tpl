{{- define "roadstead.image" -}}
{{ .Values.image.repository }}/roadstead-manager{{ if hasPrefix "sha256:" .Values.image.tag }}@{{ else }}:{{ end }}{{ .Values.image.tag }}
{{- end }}

{{- define "roadstead.theirs" -}}
apiVersion: config.kueue.x-k8s.io/v1beta2
health:
  healthProbeBindAddress: ":{{ .Values.ports.health }}"
kind: Configuration
leaderElection:
  leaderElect: true
metrics:
  bindAddress: ":{{ .Values.ports.metrics }}"
namespace: {{ .Release.Namespace | quote }}
visibilityServer:
  bindPort: {{ .Values.ports.visibility }}
webhook:
  port: {{ .Values.ports.webhook }}
{{- end }}

{{- define "roadstead.ours" -}}
apiVersion: config.roadstead.dev/v1alpha1
kind: RoadsteadConfiguration
{{- end }}

{{- define "roadstead.config" -}}
{{- $theirs := include "roadstead.theirs" . | fromYaml }}
{{- if (eq (dig "apiVersion" "" .Values.configuration) "config.kueue.x-k8s.io/v1beta1") }}{{- $_ := unset $theirs "visibilityServer" }}{{- end }}
{{- mergeOverwrite $theirs .Values.configuration | toYaml }}
---
{{ mergeOverwrite (include "roadstead.ours" . | fromYaml) .Values.roadsteadConfiguration | toYaml }}
{{- end }}

{{- define "roadstead.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not (dig "leaderElection" "leaderElect" true .Values.configuration)) }}
{{- fail "configuration.leaderElection.leaderElect is false with several replicas: all would decide at once; set replicas to 1" }}
{{- end }}
{{- if ne (len (uniq (values .Values.ports))) (len .Values.ports) }}
{{- fail "ports: each must be another one" }}
{{- end }}
{{- if and (eq (dig "apiVersion" "" .Values.configuration) "config.kueue.x-k8s.io/v1beta1") (ne (int .Values.ports.visibility) 8082) }}
{{- fail "ports.visibility: a configuration of version config.kueue.x-k8s.io/v1beta1 cannot choose it; allowed is 8082, or write configuration in version v1beta2" }}
{{- end }}
{{- $set := include "roadstead.theirs" . | fromYaml }}
{{- $wanted := dig "health" "healthProbeBindAddress" "" $set | toString }}
{{- $found := dig "health" "healthProbeBindAddress" $wanted .Values.configuration | toString }}
{{- if ne $found $wanted }}
{{- fail (printf "configuration.health.healthProbeBindAddress is %s, but the installation sets %s; leave it out and use ports.health" $found $wanted) }}
{{- end }}
{{- $wanted := dig "webhook" "port" "" $set | toString }}
{{- $found := dig "webhook" "port" $wanted .Values.configuration | toString }}
{{- if ne $found $wanted }}
{{- fail (printf "configuration.webhook.port is %s, but the installation sets %s; leave it out and use ports.webhook" $found $wanted) }}
{{- end }}
{{- $wanted := dig "visibilityServer" "bindPort" "" $set | toString }}
{{- $found := dig "visibilityServer" "bindPort" $wanted .Values.configuration | toString }}
{{- if ne $found $wanted }}
{{- fail (printf "configuration.visibilityServer.bindPort is %s, but the installation sets %s; leave it out and use ports.visibility" $found $wanted) }}
{{- end }}
{{- $wanted := dig "namespace" "" $set | toString }}
{{- $found := dig "namespace" $wanted .Values.configuration | toString }}
{{- if ne $found $wanted }}
{{- fail (printf "configuration.namespace is %s, but the installation sets %s; leave it out and use the namespace of the installation" $found $wanted) }}
{{- end }}
{{- end }}

