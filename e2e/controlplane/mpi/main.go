// The MPI operator of the tests' clusters: the controller of its release under a program of our own.
//
// Why not its own program: that one answers health probes on port 8080 of every address, so there can be one on a machine.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	mpi "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpischeme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	health := flag.String("health", "", "address of the health probes")
	settings := options.NewServerOption()
	settings.AddFlags(flag.CommandLine)
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.QPS, config.Burst = float32(settings.QPS), settings.Burst
	kube, err := kubernetes.NewForConfig(config)
	must(err)
	jobs, err := mpi.NewForConfig(config)
	must(err)
	// Why: it sets defaults and records events by the scheme of all clients.
	must(mpischeme.AddToScheme(scheme.Scheme))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	shared := informers.NewSharedInformerFactory(kube, 0)
	own := mpiinformers.NewSharedInformerFactory(jobs, 0)
	core := shared.Core().V1()
	operator, err := controller.NewMPIJobController(
		ctx, kube, jobs, nil, nil,
		core.ConfigMaps(), core.Secrets(), core.Services(), shared.Batch().V1().Jobs(), core.Pods(),
		shared.Scheduling().V1().PriorityClasses(), own.Kubeflow().V2beta1().MPIJobs(),
		settings)
	must(err)
	shared.Start(ctx.Done())
	own.Start(ctx.Done())

	go func() {
		well := func(answer http.ResponseWriter, _ *http.Request) { answer.WriteHeader(http.StatusOK) }
		log.Fatal(http.ListenAndServe(*health, http.HandlerFunc(well)))
	}()
	must(operator.Run(settings.Threadiness, ctx.Done()))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
