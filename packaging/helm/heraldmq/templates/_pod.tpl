{{/* What the containers of all pods may do: nothing that the image does not need. */}}
{{- define "heraldmq.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}
{{- define "heraldmq.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What differs from pod to pod, and what `heraldmq` needs that somebody runs in a pod. */}}
{{- define "heraldmq.env" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: HERALDMQ_CLUSTERCONFIG__HOST
  value: $(POD_NAME).{{ include "heraldmq.domain" . }}
- name: HERALDMQ_CLUSTERCONFIG__NODENAME
  value: $(POD_NAME)
- name: HERALDMQ_URL
  value: http://127.0.0.1:{{ int (include "heraldmq.config" . | fromYaml).http.port }}
- name: HERALDMQ_KEY_FILE
  value: /etc/heraldmq/secrets/token
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "heraldmq.mounts" -}}
- name: config
  mountPath: /etc/heraldmq/config
  readOnly: true
- name: secrets
  mountPath: /etc/heraldmq/secrets
  readOnly: true
{{- if include "heraldmq.hasUsers" . }}
- name: users
  mountPath: /etc/heraldmq/users
  readOnly: true
{{- end }}
{{- if .Values.tls.clients.enabled }}
- name: clients-tls
  mountPath: /etc/heraldmq/tls/clients
  readOnly: true
{{- end }}
{{- if .Values.tls.nodes.enabled }}
- name: nodes-tls
  mountPath: /etc/heraldmq/tls/nodes
  readOnly: true
{{- end }}
- name: data
  mountPath: /var/lib/heraldmq
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Not empty, if there are files of users or rules. */}}
{{- define "heraldmq.hasUsers" -}}
{{- if or .Values.users.existing .Values.users.passwords .Values.users.rules }}yes{{ end -}}
{{- end }}
