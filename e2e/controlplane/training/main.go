// The training operator of the tests' clusters: the controllers and webhooks of its release under a program of our own.
//
// Why not its own program: that one makes its certificates itself, in a directory that it shares with every other one on the
// machine, and its webhooks listen on every address.
package main

import (
	"flag"
	"log"

	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllers "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/webhooks"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Without MPIJob: its version 1 is another API than the one of the MPI operator.
var kinds = []string{
	kubeflowv1.TFJobKind, kubeflowv1.PyTorchJobKind, kubeflowv1.PaddleJobKind, kubeflowv1.XGBoostJobKind, kubeflowv1.JAXJobKind,
}

func main() {
	health := flag.String("health", "", "address of the health probes")
	port := flag.Int("webhook-port", 0, "port of the webhooks, on loopback")
	certificates := flag.String("certificates", "", "directory of tls.crt and tls.key")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	// Its flags have these values when they are not given.
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault

	scheme := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(scheme))
	must(kubeflowv1.AddToScheme(scheme))
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: *health,
		WebhookServer:          webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certificates}),
	})
	must(err)
	must(manager.AddHealthzCheck("healthz", healthz.Ping))
	must(manager.AddReadyzCheck("readyz", manager.GetWebhookServer().StartedChecker()))
	for _, kind := range kinds {
		must(controllers.SupportedSchemeReconciler[kind](manager, common.GenNonGangSchedulerSetupFunc(), 1))
		must(webhooks.SupportedSchemeWebhook[kind](manager))
	}
	must(manager.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
