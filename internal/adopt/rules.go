package adopt

// rule says what happens to a flag of a component other than the API server.
type rule struct {
	verdict Verdict
	note    string
	// setting is the name of the setting, for a taken flag with another name.
	setting string
	// only are the values that the verdict is for; others are refused. nil accepts each.
	only []string
}

const (
	inProcess = "runs in the server's process, with an identity of its own"
	elected   = "one server's controllers and scheduler work at a time"
	pacing    = "how fast this part works is not set"
	logging   = "the log is set by --log-level"
	health    = "the API server's port has the health and the metrics"
)

// shared are the rules of controllers and scheduler.
var shared = map[string]rule{
	"authentication-kubeconfig":          {verdict: Equivalent, note: inProcess},
	"authorization-kubeconfig":           {verdict: Equivalent, note: inProcess},
	"authorization-always-allow-paths":   {verdict: NoEffect, note: health},
	"bind-address":                       {verdict: Equivalent, note: health},
	"cert-dir":                           {verdict: NoEffect, note: health},
	"client-ca-file":                     {verdict: Equivalent, note: health},
	"contention-profiling":               {verdict: NoEffect, note: health},
	"kube-api-burst":                     {verdict: NoEffect, note: inProcess},
	"kube-api-content-type":              {verdict: NoEffect, note: inProcess},
	"kube-api-qps":                       {verdict: NoEffect, note: inProcess},
	"kubeconfig":                         {verdict: Equivalent, note: inProcess},
	"leader-elect":                       {verdict: Equivalent, note: elected},
	"leader-elect-lease-duration":        {verdict: NoEffect, note: elected},
	"leader-elect-renew-deadline":        {verdict: NoEffect, note: elected},
	"leader-elect-resource-lock":         {verdict: NoEffect, note: elected},
	"leader-elect-resource-name":         {verdict: NoEffect, note: elected},
	"leader-elect-resource-namespace":    {verdict: NoEffect, note: elected},
	"leader-elect-retry-period":          {verdict: NoEffect, note: elected},
	"log-flush-frequency":                {verdict: NoEffect, note: logging},
	"log-json-info-buffer-size":          {verdict: NoEffect, note: logging},
	"log-json-split-stream":              {verdict: NoEffect, note: logging},
	"log-text-info-buffer-size":          {verdict: NoEffect, note: logging},
	"log-text-split-stream":              {verdict: NoEffect, note: logging},
	"logging-format":                     {verdict: NoEffect, note: logging},
	"profiling":                          {verdict: NoEffect, note: health},
	"requestheader-client-ca-file":       {verdict: Equivalent, note: health},
	"requestheader-allowed-names":        {verdict: NoEffect, note: health},
	"requestheader-extra-headers-prefix": {verdict: NoEffect, note: health},
	"requestheader-group-headers":        {verdict: NoEffect, note: health},
	"requestheader-username-headers":     {verdict: NoEffect, note: health},
	"secure-port":                        {verdict: NoEffect, note: health},
	"tls-cert-file":                      {verdict: NoEffect, note: health},
	"tls-cipher-suites":                  {verdict: NoEffect, note: health},
	"tls-min-version":                    {verdict: NoEffect, note: health},
	"tls-private-key-file":               {verdict: NoEffect, note: health},
	"v":                                  {verdict: NoEffect, note: logging},
	"vmodule":                            {verdict: NoEffect, note: logging},
}

// ofController are the further rules of kube-controller-manager.
var ofController = map[string]rule{
	"allocate-node-cidrs":                          {verdict: Equivalent, note: "each node gets a part of --pod-cidr", only: []string{"true"}},
	"cloud-provider":                               {verdict: Equivalent, note: "no controller of a cloud runs here", only: []string{"external", ""}},
	"cluster-cidr":                                 {verdict: Taken, setting: "pod-cidr"},
	"cluster-name":                                 {verdict: NoEffect, note: "only controllers of clouds use it"},
	"cluster-signing-cert-file":                    {verdict: Equivalent, note: "pki/ca.crt"},
	"cluster-signing-duration":                     {verdict: Taken},
	"cluster-signing-key-file":                     {verdict: Equivalent, note: "pki/ca.key"},
	"configure-cloud-routes":                       {verdict: Equivalent, note: "no controller of a cloud runs here", only: []string{"false"}},
	"controllers":                                  {verdict: Equivalent, note: "all controllers run", only: []string{"*", "*,bootstrapsigner,tokencleaner", "*,bootstrap-signer-controller,token-cleaner-controller"}},
	"controller-start-interval":                    {verdict: NoEffect, note: pacing},
	"legacy-service-account-token-clean-up-period": {verdict: Taken},
	"min-resync-period":                            {verdict: NoEffect, note: pacing},
	"node-cidr-mask-size":                          {verdict: Equivalent, note: "a node gets a /24", only: []string{"24"}},
	"node-cidr-mask-size-ipv4":                     {verdict: Equivalent, note: "a node gets a /24", only: []string{"24"}},
	"node-monitor-grace-period":                    {verdict: Taken},
	"node-monitor-period":                          {verdict: NoEffect, note: pacing},
	"root-ca-file":                                 {verdict: Equivalent, note: "pki/ca.crt"},
	"service-account-private-key-file":             {verdict: Equivalent, note: "pki/sa.key"},
	"service-cluster-ip-range":                     {verdict: Equivalent, note: "the API server's --service-cluster-ip-range"},
	"use-service-account-credentials":              {verdict: Equivalent, note: "each controller has only its own rights", only: []string{"true"}},
}

// ofEtcd are the rules of etcd. Its other flags tune a process that knarr does not have.
var ofEtcd = map[string]rule{
	"data-dir":              {verdict: Equivalent, note: "copied to DATA-DIR/etcd"},
	"name":                  {verdict: Taken, setting: "node-name"},
	"quota-backend-bytes":   {verdict: Taken, setting: "store-quota"},
	"auth-token":            {verdict: NoEffect, note: "the store has no users"},
	"force-new-cluster":     {verdict: NoEffect, note: "the store becomes a new cluster of one member"},
	"initial-cluster":       {verdict: NoEffect, note: "the store becomes a new cluster of one member"},
	"initial-cluster-state": {verdict: NoEffect, note: "the store becomes a new cluster of one member"},
	"listen-client-urls":    {verdict: NoEffect, note: "the store is in the server's process and has no clients"},
	"listen-metrics-urls":   {verdict: NoEffect, note: health},
}

const etcdOther = "it tunes etcd as a process of its own"

// ofStore are the API server's flags of the store and of keys that knarr has itself.
var ofStore = map[string]string{
	"etcd-servers":  "the store is in the server's process",
	"etcd-cafile":   "the store is in the server's process",
	"etcd-certfile": "the store is in the server's process",
	"etcd-keyfile":  "the store is in the server's process",
}

// fileFlags are the API server's flags that name one file to read. The file is copied.
var fileFlags = map[string]bool{
	"admission-control-config-file": true, "audit-policy-file": true, "audit-webhook-config-file": true,
	"authentication-config": true, "authentication-token-webhook-config-file": true, "authorization-config": true,
	"authorization-policy-file": true, "authorization-webhook-config-file": true, "client-ca-file": true,
	"egress-selector-config-file": true, "encryption-provider-config": true, "kubelet-certificate-authority": true,
	"kubelet-client-certificate": true, "kubelet-client-key": true, "oidc-ca-file": true, "proxy-client-cert-file": true,
	"proxy-client-key-file": true, "requestheader-client-ca-file": true, "tls-cert-file": true, "tls-private-key-file": true,
	"token-auth-file": true, "tracing-config-file": true,
}

// pathFlags name a file that is written, or a socket. They get the machine's path.
var pathFlags = map[string]bool{"audit-log-path": true, "service-account-signing-endpoint": true}

// mayName are the files that can name other files, which are not copied.
var mayName = map[string]bool{
	"admission-control-config-file": true, "audit-webhook-config-file": true, "authentication-token-webhook-config-file": true,
	"authorization-config": true, "authorization-webhook-config-file": true, "egress-selector-config-file": true, "encryption-provider-config": true,
}
