//! Carries out a plan, one write at a time; each may be repeated after a crash.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::{Api, Resource as _, ResourceExt as _};
use roadstead_api::appwrapper::v1beta2::AppWrapper;
use roadstead_convert::appwrapper::{child, status_patch};
use roadstead_core::appwrapper::observed::{Child, Component, Created, Stranger};
use roadstead_core::appwrapper::status::{FINALIZER, Phase};
use roadstead_core::appwrapper::{Finalizer, How, Plan, Removal};
use roadstead_core::name::Key;
use roadstead_kubeio::cache::key_of;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::write::{self, Written};
use serde_json::json;

use super::Wrappers;
use super::kinds::{Found, Grace, Kind};
use super::pods::Pod;
use super::read::{Scene, view};

/// How a plan was carried out.
pub(super) enum Done {
    /// Something has changed: plan again.
    Again,
    /// Nothing to do until something changes, or until this time.
    Rest(Option<Timestamp>),
    Stuck(Failure),
}

pub(super) async fn carry_out(w: &Wrappers, wrapper: &AppWrapper, scene: &Scene, plan: Plan) -> Done {
    let writer = Writer {
        w,
        wrapper,
        scene,
        key: key_of(wrapper),
    };
    writer.run(plan).await.unwrap_or_else(Done::Stuck)
}

struct Writer<'a> {
    w: &'a Wrappers,
    wrapper: &'a AppWrapper,
    scene: &'a Scene,
    key: Key,
}

impl Writer<'_> {
    async fn run(&self, plan: Plan) -> Result<Done, Failure> {
        let problems = plan.problems.join("; ");
        if plan.finalizer == Finalizer::Add {
            self.finalizer(Finalizer::Add).await?;
            // Why planned again: the finalizer gave the object a new version, and the patch of the status is for the version
            // before.
            return Ok(Done::Again);
        }
        let mut changed = self.status(&plan).await?;
        self.tell(&plan);
        if !plan.create.is_empty() && !changed {
            let created = self.create_all(&plan.create).await;
            let plan = self.scene.plan_with(&created, (self.w.clock)());
            let stored = self.status(&plan).await?;
            self.tell(&plan);
            return Ok(if stored {
                Done::Again
            } else {
                Done::Rest(plan.wake)
            });
        }
        for removal in &plan.remove {
            self.remove(removal).await?;
        }
        if plan.finalizer == Finalizer::Remove {
            changed |= self.finalizer(Finalizer::Remove).await?;
        }
        if changed {
            return Ok(Done::Again);
        }
        if problems.is_empty() {
            Ok(Done::Rest(plan.wake))
        } else {
            Err(Failure::passing(problems))
        }
    }

    fn tell(&self, plan: &Plan) {
        for note in &plan.notes {
            self.w.recorder.record(self.wrapper.object_ref(&()), note.clone());
        }
    }

    fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.w.client.clone(), &self.key.namespace, &self.w.resource)
    }

    /// Writes the status if it differs; returns whether it did.
    async fn status(&self, plan: &Plan) -> Result<bool, Failure> {
        let Some(patch) = status_patch(self.wrapper, &plan.status) else {
            return Ok(false);
        };
        let answer = write::patch_status(&self.api(), &self.key.name, &patch).await;
        self.observe(answer, "its status")?;
        let (before, after) = (self.scene.status.phase, plan.status.phase);
        if before != after && after != Phase::Terminating {
            self.w.phases.entered(&self.key.namespace, after.as_str());
        }
        Ok(true)
    }

    /// Adds or removes the finalizer; returns whether anything was written.
    async fn finalizer(&self, how: Finalizer) -> Result<bool, Failure> {
        // Why the cached object: the status may have been written since.
        let Some(stored) = self.w.objects.get(&self.key) else {
            return Ok(false);
        };
        let mut finalizers: Vec<&str> = stored.finalizers().iter().map(String::as_str).collect();
        finalizers.retain(|name| *name != FINALIZER);
        if how == Finalizer::Add {
            finalizers.push(FINALIZER);
        }
        let version = stored.metadata.resource_version.as_deref();
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let answer = write::patch(&self.api(), &self.key.name, &patch).await;
        let last = how == Finalizer::Remove && finalizers.is_empty();
        if last && matches!(answer, Written::Done(_)) {
            self.w
                .objects
                .forget(&self.key, self.wrapper.metadata.uid.as_deref());
            return Ok(true);
        }
        self.observe(answer, "its finalizer")?;
        Ok(true)
    }

    fn observe(&self, answer: Written<DynamicObject>, what: &str) -> Result<(), Failure> {
        match answer {
            Written::Done(object) => self.w.objects.observe(*object),
            Written::Gone => self
                .w
                .objects
                .forget(&self.key, self.wrapper.metadata.uid.as_deref()),
            Written::Conflict => {
                return Err(Failure::passing(format!(
                    "writing {what}: it was changed meanwhile"
                )));
            }
            answer @ (Written::AlreadyExists | Written::Refused(_) | Written::Unclear(_)) => {
                let what = format_args!("writing {what}");
                answer.stored().map_err(|failure| failure.in_doing(what))?;
            }
        }
        Ok(())
    }

    /// Creates children in order, until one fails.
    async fn create_all(&self, which: &[usize]) -> BTreeMap<usize, Created> {
        let mut created = BTreeMap::new();
        for index in which {
            let Some(component) = self.scene.components.get(*index) else {
                break;
            };
            let answer = self.create(*index, component).await;
            let done = answer == Created::Done;
            created.insert(*index, answer);
            if !done {
                break;
            }
        }
        created
    }

    /// *Source*: `spec/appwrapper.md 1.7`, the table of creation errors.
    async fn create(&self, index: usize, component: &Component) -> Created {
        let identity = &component.identity;
        if let Err(failure) = self.w.settings.allows(identity) {
            return Created::Fatal(failure.into());
        }
        let (version, kind) = (&identity.api_version, &identity.kind);
        let found = match self.w.kinds.find(version, kind).await {
            Err(failure) => return Created::Retryable(failure.into()),
            Ok(None) => {
                return Created::Fatal(format!("no matches for kind \"{kind}\" in version \"{version}\""));
            }
            Ok(Some(found)) if !found.namespaced => {
                return Created::Fatal(format!(
                    "{kind} of {version} has no namespace and cannot be wrapped"
                ));
            }
            Ok(Some(found)) => found,
        };
        let object = match child(self.wrapper, index, component, &self.w.settings.building) {
            Err(why) => return Created::Fatal(why),
            Ok(object) => object,
        };
        let object: DynamicObject = match serde_json::from_value(object) {
            Err(error) => return Created::Fatal(format!("the template is not an object: {error}")),
            Ok(object) => object,
        };
        match found
            .api(&self.key.namespace)
            .create(&PostParams::default(), &object)
            .await
        {
            Ok(object) => {
                found.observe(object);
                Created::Done
            }
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                self.meet(&found, component).await
            }
            Err(error) => {
                let why = write::describe(&error);
                let code = if let kube::Error::Api(status) = &error {
                    status.code
                } else {
                    0
                };
                match code {
                    422 => Created::Fatal(why),
                    400..=499 => Created::Retryable(why),
                    _ => Created::Unclear(why),
                }
            }
        }
    }

    /// An object with the name of a child exists already.
    async fn meet(&self, kind: &Kind, component: &Component) -> Created {
        let identity = &component.identity;
        let why = format!(
            "resource {} exists, but is not controlled by appwrapper",
            identity.name
        );
        match self.w.kinds.ask(kind, &self.key.namespace, identity).await {
            Found::There(object) => match view(self.wrapper, identity, &object) {
                Child::Present { leaving: false, .. } => Created::Done,
                Child::Foreign(Stranger::Other) => Created::Fatal(why),
                Child::Present { .. } | Child::Foreign(Stranger::Predecessor) => Created::Retryable(why),
                Child::Missing | Child::Unread(_) => Created::Unclear(why),
            },
            Found::NotThere => {
                Created::Retryable(format!("{} vanished while it was looked at", identity.name))
            }
            Found::Unclear(failure) => Created::Unclear(failure.into()),
        }
    }

    async fn remove(&self, removal: &Removal) -> Result<(), Failure> {
        match removal {
            Removal::Child { component, uid, how } => {
                let Some(component) = self.scene.components.get(*component) else {
                    return Ok(());
                };
                let identity = &component.identity;
                let found = self.w.kinds.find(&identity.api_version, &identity.kind).await?;
                let Some(kind) = found else {
                    return Ok(());
                };
                let key = Key::new(self.key.namespace.clone(), identity.name.as_str());
                let grace = match how {
                    How::Gracefully => Grace::AsItIs,
                    How::AtOnce => Grace::None,
                };
                let done = kind.delete(&key, uid.as_str(), grace).await;
                let what = format!("deleting {} {}", identity.kind, identity.name);
                done.map_err(|failure| failure.in_doing(what))
            }
            Removal::Pod { name, uid } => {
                let api: Api<Pod> = Api::namespaced(self.w.client.clone(), &self.key.namespace);
                let key = Key::new(self.key.namespace.clone(), name.as_str());
                match write::delete_at_once(&api, name, Some(uid.as_str())).await {
                    Written::Done(pod) => self.w.pods.observe(*pod),
                    Written::Gone => self.w.pods.forget(&key, Some(uid.as_str())),
                    answer @ (Written::Conflict
                    | Written::AlreadyExists
                    | Written::Refused(_)
                    | Written::Unclear(_)) => {
                        let what = format_args!("deleting pod {name}");
                        answer.stored().map_err(|failure| failure.in_doing(what))?;
                    }
                }
                Ok(())
            }
        }
    }
}
