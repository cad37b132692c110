package resource

import "k8s.io/apimachinery/pkg/runtime/schema"

// strategies lists every kind's behaviour.
var strategies = map[schema.GroupResource]*Strategy{}
