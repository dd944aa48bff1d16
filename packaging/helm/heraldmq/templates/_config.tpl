{{/* The configuration file: what the chart sets, with `config` over it. */}}
{{- define "heraldmq.config" -}}
{{- $domain := include "heraldmq.domain" . -}}
{{- $mqtt := dict "tcpListener" (dict "port" 1883) -}}
{{- if .Values.tls.clients.enabled -}}
{{- $files := dict "certFile" "/etc/heraldmq/tls/clients/tls.crt" "keyFile" "/etc/heraldmq/tls/clients/tls.key" -}}
{{- $mqtt = dict "tcpListener" (dict "enable" false "port" 1883) "tlsListener" (dict "port" 8883 "sslConfig" $files) -}}
{{- end -}}
{{- $cluster := dict
    "env" (printf "%s/%s" .Release.Namespace (include "heraldmq.name" .))
    "port" 8899
    "clusterDomainName" $domain
    "secretFile" "/etc/heraldmq/secrets/cluster-secret"
    "afterLeave" "wait" -}}
{{- if .Values.tls.nodes.enabled -}}
{{- $_ := set $cluster "sslConfig" (dict
    "certFile" "/etc/heraldmq/tls/nodes/tls.crt"
    "keyFile" "/etc/heraldmq/tls/nodes/tls.key"
    "caFile" "/etc/heraldmq/tls/nodes/ca.crt") -}}
{{- end -}}
{{- $config := dict
    "bootstrap" true
    "mqttServerConfig" $mqtt
    "clusterConfig" $cluster
    "allowAnonymous" false
    "http" (dict "host" "0.0.0.0" "port" 8091 "tokenFile" "/etc/heraldmq/secrets/token")
    "stop" (dict "drainSeconds" 60 "majoritySeconds" 30) -}}
{{- if or .Values.users.existing .Values.users.passwords -}}
{{- $chain := dict "kind" "passwordFile" "file" "/etc/heraldmq/users/passwords" -}}
{{- $_ := set $config "authentication" (dict "chain" (list $chain (dict "kind" "control"))) -}}
{{- end -}}
{{- if or .Values.users.existing .Values.users.rules -}}
{{- $_ := set $config "authorization" (dict "file" "/etc/heraldmq/users/rules" "noMatch" "deny") -}}
{{- end -}}
{{- $config = mergeOverwrite $config (deepCopy .Values.config) -}}
{{- if not (hasKey $config.clusterConfig "seedEndpoints") -}}
{{- $seeds := list -}}
{{- range $ordinal := until (int .Values.replicas) -}}
{{- $seeds = append $seeds (printf "%s-%d.%s:%d" (include "heraldmq.name" $) $ordinal $domain (int $config.clusterConfig.port)) -}}
{{- end -}}
{{- $_ := set $config.clusterConfig "seedEndpoints" (join "," $seeds) -}}
{{- end -}}
{{- if eq (toString $config.http.enable) "false" -}}
{{- fail "config.http.enable: the probes and Jobs of this chart need the HTTP port" -}}
{{- end -}}
{{- if dig "sslConfig" "certFile" "" $config.http -}}
{{- fail "config.http.sslConfig: the probes and Jobs of this chart ask the HTTP port without TLS; put TLS in front of it" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}

{{/* Changes when pods have to restart: pods go on with the seeds that they have when only `replicas` changes. */}}
{{- define "heraldmq.configHash" -}}
{{- $config := include "heraldmq.config" . | fromYaml -}}
{{- $_ := unset $config.clusterConfig "seedEndpoints" -}}
{{- toYaml $config | sha256sum -}}
{{- end }}

{{/* The listeners that are open, as `listeners:` with name and port of each. */}}
{{- define "heraldmq.listeners" -}}
{{- $mqtt := (include "heraldmq.config" . | fromYaml).mqttServerConfig -}}
{{- $open := list -}}
{{- range $kind := list (list "tcpListener" "mqtt" 1883) (list "tlsListener" "mqtts" 8883) (list "wsListener" "ws" 8080) (list "wssListener" "wss" 8443) -}}
{{- $listeners := index $mqtt (index $kind 0) | default list -}}
{{- if kindIs "map" $listeners -}}
{{- $listeners = list $listeners -}}
{{- end -}}
{{- $number := 0 -}}
{{- range $listener := $listeners -}}
{{- if ne (toString $listener.enable) "false" -}}
{{- $number = add $number 1 -}}
{{- $name := eq (int $number) 1 | ternary (index $kind 1) (printf "%s-%d" (index $kind 1) (int $number)) -}}
{{- $open = append $open (dict "name" $name "port" (int ($listener.port | default (index $kind 2)))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $open -}}
{{- fail "config.mqttServerConfig: no listener for clients is enabled" -}}
{{- end -}}
{{- toYaml (dict "listeners" $open) -}}
{{- end }}
