{{/* Names and labels. A StatefulSet adds up to 11 characters to a label of its pods, the chart up to 8 to names. */}}
{{- define "heraldmq.name" -}}
{{- $name := .Values.fullnameOverride | default (contains "heraldmq" .Release.Name | ternary .Release.Name (printf "%s-heraldmq" .Release.Name)) -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{/* The headless Service, whose names the nodes know each other by. */}}
{{- define "heraldmq.headless" -}}
{{ include "heraldmq.name" . }}-nodes
{{- end }}
{{- define "heraldmq.domain" -}}
{{ include "heraldmq.headless" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "heraldmq.secret" -}}
{{ .Values.secret.existing | default (printf "%s-secret" (include "heraldmq.name" .)) }}
{{- end }}
{{- define "heraldmq.users" -}}
{{ .Values.users.existing | default (printf "%s-users" (include "heraldmq.name" .)) }}
{{- end }}
{{- define "heraldmq.clientsTls" -}}
{{ .Values.tls.clients.existing | default (printf "%s-tls" (include "heraldmq.name" .)) }}
{{- end }}
{{- define "heraldmq.nodesTls" -}}
{{ .Values.tls.nodes.existing | default (printf "%s-nodes-tls" (include "heraldmq.name" .)) }}
{{- end }}

{{- define "heraldmq.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* No label has the version of chart or broker: pods restart for what changes them only. */}}
{{- define "heraldmq.release" -}}
app.kubernetes.io/name: heraldmq
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "heraldmq.labels" -}}
{{ include "heraldmq.release" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "heraldmq.selector" -}}
{{ include "heraldmq.release" . }}
app.kubernetes.io/component: broker
{{- end }}
