{{- define "tailorbird.name" -}}
{{- $name := ternary .Release.Name (printf "%s-tailorbird" .Release.Name) (contains "tailorbird" .Release.Name) -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- /* A part of a resource's name: as Kubernetes permits it. */}}
{{- define "tailorbird.part" -}}
{{- . | lower | replace "_" "-" | replace "." "-" | trunc 20 | trimAll "-" -}}
{{- end }}

{{- define "tailorbird.selector" -}}
app.kubernetes.io/name: tailorbird
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .part }}
tailorbird.io/part: {{ include "tailorbird.part" . }}
{{- end }}
{{- end }}

{{- define "tailorbird.labels" -}}
{{ include "tailorbird.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "tailorbird.image" -}}
{{- with .root.Values.image.registry }}{{ . }}/{{ end }}tailorbird-{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "tailorbird.account" -}}
{{ .Values.serviceAccount.name | default (include "tailorbird.name" .) }}
{{- end }}

{{- define "tailorbird.topology" -}}
{{ .Values.topology.existingConfigMap | default (printf "%s-topology" (include "tailorbird.name" .)) }}
{{- end }}

{{- define "tailorbird.metadata" -}}
labels:
  {{- include "tailorbird.labels" . | nindent 2 }}
annotations:
  checksum/topology: {{ .root.Values.topology.text | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* What all pods have in common. `token`: whether the pod calls the API of Kubernetes. */}}
{{- define "tailorbird.pod" -}}
serviceAccountName: {{ include "tailorbird.account" .root }}
automountServiceAccountToken: {{ .token | default false }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tailorbird.container" -}}
image: {{ include "tailorbird.image" . }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  - name: TAILORBIRD_METRICS_PORT
    value: {{ .root.Values.metricsPort | quote }}
  {{- with .root.Values.environment }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.secrets.environment }}
envFrom:
  {{- range . }}
  - secretRef: {name: {{ . }}}
  {{- end }}
{{- end }}
{{- end }}

{{- define "tailorbird.mounts" -}}
- {name: topology, mountPath: /etc/tailorbird, readOnly: true}
- {name: state, mountPath: /var/lib/tailorbird}
- {name: tmp, mountPath: /tmp}
{{- range $at, $one := .root.Values.secrets.files }}
- {name: secret-{{ $at }}, mountPath: {{ $one.path }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "tailorbird.volumes" -}}
- name: topology
  configMap: {name: {{ include "tailorbird.topology" .root }}}
- name: tmp
  emptyDir: {}
{{- if not .claimed }}
- name: state
  emptyDir: {}
{{- end }}
{{- range $at, $one := .root.Values.secrets.files }}
- name: secret-{{ $at }}
  secret: {secretName: {{ $one.secret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- /* Which versions of tables run is in Kafka; the processes read it from their state folder. */}}
{{- define "tailorbird.versions" -}}
- name: versions
  {{- include "tailorbird.container" (dict "root" .root "image" "console") | nindent 2 }}
  args: [versions, /etc/tailorbird/topology.yml]
  volumeMounts:
    {{- include "tailorbird.mounts" . | nindent 4 }}
{{- end }}

{{- /* The container is started again only if its process hangs; a source that is unavailable must not cause that. */}}
{{- define "tailorbird.probes" -}}
ports:
  - {name: metrics, containerPort: {{ .root.Values.metricsPort }}}
  {{- range $name, $port := .ports }}
  - {name: {{ $name }}, containerPort: {{ $port }}}
  {{- end }}
startupProbe:
  tcpSocket: {port: metrics}
  periodSeconds: 5
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /health, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}
