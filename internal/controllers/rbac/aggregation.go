// Package rbac maintains aggregated ClusterRoles.
package rbac

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Aggregation fills the rules of ClusterRoles with an aggregationRule from the roles that it
// selects.
var Aggregation = controller.Starter{Name: "clusterrole-aggregation-controller", Run: run}

func run(ctx context.Context, env controller.Env) error {
	roles, err := client.Open[*rbacv1.ClusterRole](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open cluster roles: %w", err)
	}
	roles.AddIndex("aggregated", func(r *rbacv1.ClusterRole) []string {
		if r.AggregationRule == nil {
			return nil
		}
		return []string{"yes"}
	})
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "clusterrole-aggregation-controller",
		Inputs: []controller.Input{controller.On(roles, func(client.TypedEvent[*rbacv1.ClusterRole]) []controller.Key {
			var keys []controller.Key
			for _, r := range roles.ByIndex("aggregated", "yes") {
				keys = append(keys, controller.KeyOf(r))
			}
			return keys
		})},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			role, ok := roles.Get("", key.Name)
			if !ok || role.AggregationRule == nil {
				return controller.Result{}, nil
			}
			rules, err := aggregate(role, roles)
			if err != nil {
				return controller.Result{}, controller.Terminal(err)
			}
			if equality.Semantic.DeepEqual(rules, role.Rules) {
				return controller.Result{}, nil
			}
			role = role.DeepCopy()
			role.Rules = rules
			_, err = client.Update(ctx, env.Client, role)
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return controller.Result{}, err
		},
	}
	return loop.Run(ctx)
}

// aggregate returns the rules of the selected roles in the order of their names, without
// duplicates.
func aggregate(role *rbacv1.ClusterRole, roles client.ViewOf[*rbacv1.ClusterRole]) ([]rbacv1.PolicyRule, error) {
	var selected []*rbacv1.ClusterRole
	seen := map[string]bool{role.Name: true}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("aggregation rule of cluster role %s: %w", role.Name, err)
		}
		for _, r := range roles.List("", nil) {
			if !seen[r.Name] && selector.Matches(labels.Set(r.Labels)) {
				seen[r.Name] = true
				selected = append(selected, r)
			}
		}
	}
	slices.SortFunc(selected, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	rules := []rbacv1.PolicyRule{}
	for _, r := range selected {
		for _, rule := range r.Rules {
			if !slices.ContainsFunc(rules, func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, rule) }) {
				rules = append(rules, *rule.DeepCopy())
			}
		}
	}
	return rules, nil
}
