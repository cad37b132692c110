package apiserver

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/store"
)

// families are the metrics of upstream's API server v1.36 that dashboards and alerts use, with
// their labels in order, without "le".
var families = map[string]string{
	"aggregator_unavailable_apiservice":                              "name",
	"apiserver_admission_step_admission_duration_seconds":            "operation rejected type",
	"apiserver_audit_event_total":                                    "",
	"apiserver_audit_requests_rejected_total":                        "",
	"apiserver_cache_list_fetched_objects_total":                     "group index resource",
	"apiserver_cache_list_returned_objects_total":                    "group resource",
	"apiserver_cache_list_total":                                     "group index resource",
	"apiserver_cel_compilation_duration_seconds":                     "",
	"apiserver_cel_evaluation_duration_seconds":                      "",
	"apiserver_client_certificate_expiration_seconds":                "",
	"apiserver_current_inflight_requests":                            "request_kind",
	"apiserver_current_inqueue_requests":                             "request_kind",
	"apiserver_flowcontrol_current_executing_requests":               "flow_schema priority_level",
	"apiserver_flowcontrol_current_executing_seats":                  "flow_schema priority_level",
	"apiserver_flowcontrol_current_inqueue_requests":                 "flow_schema priority_level",
	"apiserver_flowcontrol_current_limit_seats":                      "priority_level",
	"apiserver_flowcontrol_dispatched_requests_total":                "flow_schema priority_level",
	"apiserver_flowcontrol_nominal_limit_seats":                      "priority_level",
	"apiserver_flowcontrol_request_execution_seconds":                "flow_schema priority_level type",
	"apiserver_flowcontrol_request_queue_length_after_enqueue":       "flow_schema priority_level",
	"apiserver_flowcontrol_request_wait_duration_seconds":            "execute flow_schema priority_level",
	"apiserver_flowcontrol_target_seats":                             "priority_level",
	"apiserver_flowcontrol_work_estimated_seats":                     "flow_schema priority_level",
	"apiserver_init_events_total":                                    "group resource",
	"apiserver_longrunning_requests":                                 "component group resource scope subresource verb version",
	"apiserver_request_body_size_bytes":                              "group resource verb",
	"apiserver_request_duration_seconds":                             "component dry_run group resource scope subresource verb version",
	"apiserver_request_filter_duration_seconds":                      "filter",
	"apiserver_request_sli_duration_seconds":                         "component group resource scope subresource verb version",
	"apiserver_request_total":                                        "code component dry_run group resource scope subresource verb version",
	"apiserver_requested_deprecated_apis":                            "group removed_release resource subresource version",
	"apiserver_resource_objects":                                     "group resource",
	"apiserver_resource_size_estimate_bytes":                         "group resource",
	"apiserver_response_sizes":                                       "component group resource scope subresource verb version",
	"apiserver_storage_events_received_total":                        "group resource",
	"apiserver_storage_list_total":                                   "group resource",
	"apiserver_storage_list_fetched_objects_total":                   "group resource",
	"apiserver_storage_list_evaluated_objects_total":                 "group resource",
	"apiserver_storage_list_returned_objects_total":                  "group resource",
	"apiserver_storage_objects":                                      "resource",
	"apiserver_storage_size_bytes":                                   "storage_cluster_id",
	"apiserver_tls_handshake_errors_total":                           "",
	"apiserver_watch_cache_consistent_read_total":                    "fallback group resource success",
	"apiserver_watch_cache_events_dispatched_total":                  "group resource",
	"apiserver_watch_cache_events_received_total":                    "group resource",
	"apiserver_watch_cache_initializations_total":                    "group resource",
	"apiserver_watch_cache_read_wait_seconds":                        "group resource",
	"apiserver_watch_cache_resource_version":                         "group resource",
	"apiserver_watch_events_sizes":                                   "group resource version",
	"apiserver_watch_events_total":                                   "group resource version",
	"apiserver_watch_list_duration_seconds":                          "group resource scope version",
	"authenticated_user_requests":                                    "username",
	"authentication_attempts":                                        "result",
	"authentication_duration_seconds":                                "result",
	"authorization_attempts_total":                                   "result",
	"authorization_duration_seconds":                                 "result",
	"etcd_lease_object_counts":                                       "",
	"etcd_request_duration_seconds":                                  "group operation resource",
	"etcd_requests_total":                                            "group operation resource",
	"field_validation_request_duration_seconds":                      "field_validation",
	"go_gc_heap_goal_bytes":                                          "",
	"go_goroutines":                                                  "",
	"go_sched_latencies_seconds":                                     "",
	"kube_apiserver_clusterip_allocator_allocated_ips":               "cidr",
	"kube_apiserver_clusterip_allocator_allocation_duration_seconds": "cidr",
	"kube_apiserver_clusterip_allocator_allocation_total":            "cidr scope",
	"kube_apiserver_clusterip_allocator_available_ips":               "cidr",
	"kube_apiserver_nodeport_allocator_allocated_ports":              "",
	"kube_apiserver_nodeport_allocator_allocation_total":             "scope",
	"kube_apiserver_nodeport_allocator_available_ports":              "",
	"kubernetes_build_info":                                          "build_date compiler git_commit git_tree_state git_version go_version major minor platform",
	"process_cpu_seconds_total":                                      "",
	"process_open_fds":                                               "",
	"process_resident_memory_bytes":                                  "",
	"process_start_time_seconds":                                     "",
	"version_info":                                                   "binary component emulation min_compat",
	"watch_cache_capacity":                                           "group resource",
	"watch_cache_capacity_increase_total":                            "group resource",
	"watch_cache_capacity_decrease_total":                            "group resource",
	"pod_security_exemptions_total":                                  "request_operation resource subresource",
	"apiserver_request_timestamp_comparison_time":                    "code_path",
	"kube_apiserver_pod_logs_backend_tls_failure_total":              "",
}

// shown returns the families of a page with their labels.
func shown(page string) map[string]string {
	found := map[string]string{}
	label := regexp.MustCompile(`([a-z_]+)="`)
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(strings.TrimSpace(line), "{")
		if rest == "" {
			name, _, _ = strings.Cut(name, " ")
		}
		var labels []string
		for _, m := range label.FindAllStringSubmatch(rest, -1) {
			if m[1] != "le" {
				labels = append(labels, m[1])
			}
		}
		slices.Sort(labels)
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, part); ok {
				found[base] = strings.Join(labels, " ")
			}
		}
		found[name] = strings.Join(labels, " ")
	}
	return found
}

func TestMetricsHaveUpstreamsNamesAndLabels(t *testing.T) {
	s := newTestServer(t, withServices)
	s.Register(measure.New().Collectors()...) // of an admission chain
	url, _, _ := running(t, s)
	post := func(path, body string) {
		resp, err := http.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	post("/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"}}`)
	post("/api/v1/namespaces/default/services", `{"metadata":{"name":"a"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
	for _, path := range []string{"/api/v1/secrets", "/api/v1/namespaces/default/endpoints/none", "/api/v1/secrets?watch=1&timeoutSeconds=1",
		"/api/v1/secrets?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "/readyz"} {
		fetch(t, url+path)
	}
	_, page := fetch(t, url+"/metrics")
	found := shown(page)
	for name, want := range families {
		if got, ok := found[name]; !ok || got != want {
			t.Errorf("%s: the labels are %q (it is there: %v), want %q", name, got, ok, want)
		}
	}
	for _, want := range []string{
		`apiserver_watch_events_total{group="",resource="secrets",version="v1"} 3`,
		`apiserver_watch_list_duration_seconds_count{group="",resource="secrets",scope="cluster",version="v1"} 1`,
		`version_info{binary="1.36.3",component="kube",emulation="1.36",min_compat="1.35"} 1`, `etcd_requests_total{group="",operation="create",resource="secrets"} 1`,
		`apiserver_cache_list_returned_objects_total{group="",resource="secrets"} 1`, `apiserver_storage_objects{resource="secrets"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("lacks %s", want)
		}
	}
	_, page = fetch(t, url+"/metrics/slis")
	if want := `kubernetes_healthcheck{name="etcd",type="readyz"} 1`; !strings.Contains(page, want) {
		t.Errorf("lacks %s: %s", want, page)
	}
}

func TestDecodeErrorsAreCounted(t *testing.T) {
	s := newTestServer(t)
	url, _, _ := running(t, s)
	if _, err := s.shared.Home.Store.Commit(t.Context(), nil, store.Op{Key: "/registry/configmaps/default/bad", Value: []byte("k8s\x00 and then nonsense")}); err != nil {
		t.Fatal(err)
	}
	if resp, body := fetch(t, url+"/api/v1/namespaces/default/configmaps/bad"); resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("%s %s", resp.Status, body)
	}
	if _, page := fetch(t, url+"/metrics"); !strings.Contains(page, `apiserver_storage_decode_errors_total{group="",resource="configmaps"} `) {
		t.Error("it is not counted")
	}
}
